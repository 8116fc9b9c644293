// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net/http"
	"strconv"
	"unicode/utf8"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
)

// compatibilityLevel is the only one of the SQL dialect that the service has.
const compatibilityLevel = 20

func (c *call) ruleEntry(r broker.RuleInfo) entry {
	return entry{
		title: r.Config.Name, path: address.RulePath(c.target.Name, c.target.Subscription, r.Config.Name),
		created: r.CreatedAt, updated: r.CreatedAt,
		content: func(w writer) {
			w.open("RuleDescription", "xmlns", nsEntity, "xmlns:i", nsInstance)
			writeFilter(w, r.Config.Filter)
			writeAction(w, r.Config.Action)
			w.text("CreatedAt", formatTime(r.CreatedAt))
			w.text("Name", r.Config.Name)
			w.close("RuleDescription")
		},
	}
}

func (c *call) getRule() error {
	if err := c.allow(Read, "GetRule"); err != nil {
		return err
	}
	r, err := c.ns.RuleInfo(c.target.Name, c.target.Subscription, c.target.Rule)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.ruleEntry(r))
}

func (c *call) listRules() error {
	if err := c.allow(Read, "EnumerateRules"); err != nil {
		return err
	}
	rs, err := c.ns.Rules(c.target.Name, c.target.Subscription)
	if err != nil {
		return err
	}
	return list(c, "Rules", rs, c.ruleEntry)
}

func (c *call) putRule() error {
	if err := c.allow(Write, "CreateOrUpdateRule"); err != nil {
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
	if cfg.Name = cmp.Or(c.target.Rule, cfg.Name); cfg.Name == "" { // the path counts
		return badRequest("The rule has no name.")
	}
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
	switch n.kind() {
	case "TrueFilter":
		return broker.Filter{True: true}, nil
	case "FalseFilter":
		return broker.Filter{False: true}, nil
	case "SqlFilter":
		f := &broker.SQLFilter{CompatibilityLevel: compatibilityLevel}
		var err error
		if f.Expression, err = n.expression(); err != nil {
			return broker.Filter{}, err
		}
		f.Parameters, err = readValues(n.child("Parameters"))
		return broker.Filter{SQL: f}, err
	case "CorrelationFilter":
		f := &broker.CorrelationFilter{}
		for _, p := range correlations(f) {
			if child := n.child(p.name); child != nil {
				s := string(child.text)
				*p.at = &s
			}
		}
		var err error
		f.Properties, err = readValues(n.child("Properties"))
		return broker.Filter{Correlation: f}, err
	case "":
		return broker.Filter{}, badRequest("The filter of the rule does not say its type.")
	}
	return broker.Filter{Unknown: []byte(markup(n.write))}, nil
}

func readAction(n *node) (broker.Action, error) {
	if n == nil {
		return broker.Action{}, nil
	}
	switch n.kind() {
	case "EmptyRuleAction":
		return broker.Action{}, nil
	case "SqlRuleAction":
		sql, err := n.expression()
		if err != nil {
			return broker.Action{}, err
		}
		values, err := readValues(n.child("Parameters"))
		return broker.Action{SQL: sql, Parameters: values}, err
	case "":
		return broker.Action{}, badRequest("The action of the rule does not say its type.")
	}
	return broker.Action{Unknown: []byte(markup(n.write))}, nil
}

// expression of a filter or an action in SQL.
func (n *node) expression() (string, error) {
	e := n.child("SqlExpression")
	switch {
	case e == nil || e.value() == "":
		return "", badRequest("The %s of the rule has no SqlExpression.", n.name.Local)
	case utf8.RuneCount(e.text) > maxExpression:
		return "", badRequest("The SqlExpression is longer than %d characters.", maxExpression)
	}
	return string(e.text), nil
}

// correlation is one of the properties of the system that a filter can name.
type correlation struct {
	name string
	at   **string
}

// correlations are in the order of the service.
func correlations(f *broker.CorrelationFilter) []correlation {
	return []correlation{
		{"CorrelationId", &f.CorrelationID},
		{"MessageId", &f.MessageID},
		{"To", &f.To},
		{"ReplyTo", &f.ReplyTo},
		{"Label", &f.Label},
		{"SessionId", &f.SessionID},
		{"ReplyToSessionId", &f.ReplyToSessionID},
		{"ContentType", &f.ContentType},
	}
}

func writeFilter(w writer, f broker.Filter) {
	switch {
	case f.Unknown != nil:
		w.raw(string(f.Unknown))
	case f.SQL != nil:
		w.open("Filter", "i:type", "SqlFilter")
		writeSQL(w, f.SQL.Expression, f.SQL.Parameters)
		w.close("Filter")
	case f.Correlation != nil:
		w.open("Filter", "i:type", "CorrelationFilter")
		for _, p := range correlations(f.Correlation) {
			if *p.at != nil {
				w.text(p.name, **p.at)
			}
		}
		writeValues(w, "Properties", f.Correlation.Properties)
		w.close("Filter")
	case f.False:
		w.open("Filter", "i:type", "FalseFilter")
		writeSQL(w, "1=0", nil)
		w.close("Filter")
	default:
		// The JavaScript SDK knows it by its expression.
		w.open("Filter", "i:type", "TrueFilter")
		writeSQL(w, "1=1", nil)
		w.close("Filter")
	}
}

func writeAction(w writer, a broker.Action) {
	switch {
	case a.Unknown != nil:
		w.raw(string(a.Unknown))
	case a.SQL != "":
		w.open("Action", "i:type", "SqlRuleAction")
		writeSQL(w, a.SQL, a.Parameters)
		w.close("Action")
	default:
		w.open("Action", "i:type", "EmptyRuleAction")
		w.close("Action")
	}
}

func writeSQL(w writer, expression string, parameters map[string]any) {
	w.text("SqlExpression", expression)
	w.text("CompatibilityLevel", strconv.Itoa(compatibilityLevel))
	writeValues(w, "Parameters", parameters)
}
