// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"overdue/internal/broker"
)

// compatibilityLevel is the only one of the SQL dialect that the service has.
const compatibilityLevel = "20"

func (c *call) ruleEntry(r broker.RuleInfo) entry {
	return entry{
		title: r.Config.Name, created: r.CreatedAt, updated: r.CreatedAt,
		content: func(w writer) {
			w.open("RuleDescription", "xmlns", nsEntity, "xmlns:i", nsInstance)
			shown := c.r.Method != http.MethodPut
			writeFilter(w, &r.Config.Filter, shown)
			writeAction(w, &r.Config.Action, shown)
			w.text("CreatedAt", formatTime(r.CreatedAt))
			w.text("Name", r.Config.Name)
			w.close("RuleDescription")
		},
	}
}

func (c *call) getRule() error {
	if err := c.gate.allow(Read, "GetRule"); err != nil {
		return err
	}
	r, err := c.ns.RuleInfo(c.target.Name, c.target.Subscription, c.target.Rule)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.ruleEntry(r))
}

func (c *call) listRules() error {
	if err := c.gate.allow(Read, "EnumerateRules"); err != nil {
		return err
	}
	rs, err := c.ns.Rules(c.target.Name, c.target.Subscription)
	if err != nil {
		return err
	}
	return list(c, "Rules", rs, c.ruleEntry)
}

func (c *call) putRule() error {
	if err := c.gate.allow(Write, "CreateOrUpdateRule"); err != nil {
		return err
	}
	if err := c.checkRuleName(); err != nil {
		return err
	}
	d, err := c.description("RuleDescription")
	if err != nil {
		return err
	}
	cfg, err := readRule(d)
	if err != nil {
		return err
	}
	cfg.Name = c.target.Rule // whatever the body says
	put, code := c.ns.CreateRule, http.StatusCreated
	if c.updates() {
		put, code = c.ns.UpdateRule, http.StatusOK
	}
	r, err := put(c.target.Name, c.target.Subscription, cfg)
	if err != nil {
		return err
	}
	return c.writeEntry(code, c.ruleEntry(r))
}

// checkRuleName refuses, in the words of the service, a name with other characters
// than it allows.
func (c *call) checkRuleName() error {
	name := c.target.Rule
	if name == "" || broker.ValidRuleName(name) || utf8.RuneCountInString(name) > broker.MaxRuleName {
		return nil
	}
	return refusef(http.StatusBadRequest, "'sb://%s%s' contains character(s) that is not allowed by Service Bus. "+
		"Entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores (_).", c.r.Host, c.r.URL.RequestURI())
}

// readRule reads a RuleDescription or DefaultRuleDescription. The name is "" where
// it has none.
func readRule(d *node) (r broker.RuleConfig, err error) {
	if n := d.child("Name"); n != nil {
		r.Name = n.value()
	}
	if r.Filter, err = readFilter(d.child("Filter")); err != nil {
		return r, err
	}
	r.Action, err = readAction(d.child("Action"))
	return r, err
}

// readFilter takes what is absent for the filter that lets everything through.
func readFilter(n *node) (broker.Filter, error) {
	if n == nil {
		return broker.Filter{True: true}, nil
	}
	switch kind := n.kind(); kind {
	case "TrueFilter":
		return broker.Filter{True: true}, nil
	case "FalseFilter":
		return broker.Filter{False: true}, nil
	case "SqlFilter":
		f := &broker.SQLFilter{}
		err := n.readSQL(&f.Expression, &f.Parameters, &f.RequiresPreprocessing)
		return broker.Filter{SQL: f}, err
	case "CorrelationFilter":
		f := &broker.CorrelationFilter{}
		for _, field := range broker.CorrelationFields {
			if child := n.child(field.Property.String()); child != nil {
				*field.Of(f) = new(string(child.text))
			}
		}
		var err error
		f.Properties, err = readValues(n.child("Properties"))
		return broker.Filter{Correlation: f}, err
	default:
		return broker.Filter{}, badRequest("There is no filter of the type '%.100s'.", kind)
	}
}

func readAction(n *node) (a broker.Action, err error) {
	if n == nil {
		return a, nil
	}
	switch kind := n.kind(); kind {
	case "EmptyRuleAction":
	case "SqlRuleAction":
		err = n.readSQL(&a.SQL, &a.Parameters, &a.RequiresPreprocessing)
	default:
		err = badRequest("There is no action of the type '%.100s'.", kind)
	}
	return a, err
}

// readSQL reads a filter or an action in SQL.
func (n *node) readSQL(expression *string, parameters *broker.Values, preprocessed **bool) (err error) {
	e := n.child("SqlExpression")
	switch {
	case e == nil || e.value() == "":
		return badRequest("The %s of the rule has no SqlExpression.", n.name.Local)
	case utf8.RuneCount(e.text) > maxExpression:
		return badRequest("The SqlExpression is longer than %d characters.", maxExpression)
	}
	*expression = string(e.text)
	if p := n.child("RequiresPreprocessing"); p != nil {
		b, err := p.boolean()
		if err != nil {
			return err
		}
		*preprocessed = &b
	}
	*parameters, err = readValues(n.child("Parameters"))
	return err
}

// writeFilter writes parameters that were not stated as empty ones where they are
// to be shown: the service does so in every answer but that to a PUT.
func writeFilter(w writer, f *broker.Filter, shown bool) {
	kind, expression, sql := "TrueFilter", "1=1", f.SQL // the JavaScript SDK knows it by its expression
	switch {
	case f.Correlation != nil:
		w.open("Filter", "i:type", "CorrelationFilter")
		for _, field := range broker.CorrelationFields {
			if text := *field.Of(f.Correlation); text != nil {
				w.text(field.Property.String(), *text)
			}
		}
		writeValues(w, "Properties", f.Correlation.Properties)
		w.close("Filter")
		return
	case sql != nil:
		kind, expression = "SqlFilter", sql.Expression
	case f.False:
		kind, expression = "FalseFilter", "1=0"
	}
	w.open("Filter", "i:type", kind)
	writeExpression(w, expression)
	if sql != nil {
		writeParameters(w, sql.Parameters, sql.RequiresPreprocessing, shown)
	}
	w.close("Filter")
}

// writeAction is as writeFilter.
func writeAction(w writer, a *broker.Action, shown bool) {
	if a.SQL == "" {
		w.open("Action", "i:type", "EmptyRuleAction")
	} else {
		w.open("Action", "i:type", "SqlRuleAction")
		writeExpression(w, a.SQL)
		writeParameters(w, a.Parameters, a.RequiresPreprocessing, shown)
	}
	w.close("Action")
}

func writeExpression(w writer, sql string) {
	w.text("SqlExpression", sql)
	w.text("CompatibilityLevel", compatibilityLevel)
}

func writeParameters(w writer, values broker.Values, preprocessed *bool, shown bool) {
	writeValues(w, "Parameters", values)
	if preprocessed != nil {
		w.text("RequiresPreprocessing", strconv.FormatBool(*preprocessed))
	}
	if values == nil && shown {
		writeValues(w, "Parameters", broker.Values{})
	}
}
