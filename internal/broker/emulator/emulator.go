// SPDX-License-Identifier: Apache-2.0

// Package emulator reads the configuration file of Microsoft's Service Bus
// emulator, Config.json, as it is, so that a team can change brokers without
// changing a file.
//
// The file's defaults are the emulator's, not those of Service Bus: three
// deliveries, an hour to live, twenty seconds of duplicate detection. Source:
// Config-schema.json of Azure/azure-service-bus-emulator-installer. Its bounds are
// those of the administration API.
package emulator

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"
	"golang.org/x/text/encoding/unicode"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/broker/queue"
	iso "overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
)

// Defaults of the emulator, where they are not those of package broker.
const (
	defaultLockDuration     = time.Minute
	defaultTTL              = time.Hour
	defaultMaxDeliveryCount = 3 // the schema's; the shipped example states it everywhere
	defaultDuplicateWindow  = 20 * time.Second
)

// Default is the Config.json of an emulator that was given none. It has the entities of the
// official one, which samples and tests name.
//
//go:embed default.json
var Default string

// Config is what a Config.json asks for.
type Config struct {
	// Namespaces are one at least. The official emulator allows no second; here the first is the
	// default, and clients name the others.
	Namespaces []broker.NamespaceSetup
	// Forwards are where entities of the first namespace forward to. Whether there is such a queue
	// or topic, the file alone does not tell.
	Forwards []Forward
	// Warnings are what the file says and nobody heeds: the emulator passes over
	// properties that it does not know, so they are no errors.
	Warnings []string
}

// A Forward is a property that names where an entity forwards to.
type Forward struct {
	Line     int
	What, To string // the property and its entity, and the target
}

// A SyntaxError says what is wrong with a file, and in which line.
type SyntaxError struct {
	Line int // from 1
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse reads a Config.json. Comments and trailing commas are allowed, as the
// emulator allows them. Errors are of type *SyntaxError, but for a file that is
// another one.
func Parse(text []byte) (*Config, error) {
	text, err := toUTF8(text)
	if err != nil {
		return nil, &SyntaxError{Line: 1, Text: "this is not UTF-16: " + err.Error()}
	}
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, hujsonError(err)
	}
	r := &reader{text: text}
	file := r.object(&v, "the file")
	user := file.child("UserConfig")
	user.take("Logging") // where the emulator logs to; Overdue logs to stderr
	namespaces := user.list("Namespaces", "namespace", "")
	if len(namespaces) == 0 && len(r.errs) == 0 {
		return nil, errors.New("the file has no UserConfig.Namespaces; is it the emulator's?")
	}
	c := &Config{}
	for i, n := range namespaces {
		c.Namespaces = append(c.Namespaces, n.namespace())
		if i == 0 {
			c.Forwards, r.forwards = r.forwards, nil
			continue
		}
		n.checkOther(c.Namespaces[i])
	}
	file.end()
	user.end()
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.warnings, func(a, b *SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
	for _, w := range r.warnings {
		c.Warnings = append(c.Warnings, w.Error())
	}
	return c, nil
}

// toUTF8 returns a text in UTF-8. Editors and PowerShell on Windows write UTF-16, with a mark at its
// beginning or without. The first character of JSON is of ASCII, of which UTF-16 has one byte 0.
func toUTF8(text []byte) ([]byte, error) {
	order := unicode.LittleEndian
	switch begin := append(text[:min(len(text), 2):min(len(text), 2)], "  "...); {
	case begin[0] == 0xff && begin[1] == 0xfe, begin[0] != 0 && begin[1] == 0:
	case begin[0] == 0xfe && begin[1] == 0xff, begin[0] == 0 && begin[1] != 0:
		order = unicode.BigEndian
	default:
		return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
	}
	return unicode.UTF16(order, unicode.UseBOM).NewDecoder().Bytes(text)
}

var hujsonLine = regexp.MustCompile(`^hujson: line (\d+), column \d+: `)

// hujsonError turns an error about the text into a SyntaxError.
func hujsonError(err error) error {
	text, line := err.Error(), 1
	if m := hujsonLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits, as the expression has it
		text = text[len(m[0]):]
	}
	return &SyntaxError{Line: line, Text: "this is not JSON: " + text}
}

func (o *object) namespace() broker.NamespaceSetup {
	defer o.end()
	s := broker.NamespaceSetup{Name: o.name}
	for _, q := range o.list("Queues", "queue", "") {
		s.Queues = append(s.Queues, q.queue())
	}
	for _, t := range o.list("Topics", "topic", "") {
		s.Topics = append(s.Topics, t.topic())
	}
	return s
}

// checkOther checks a namespace that is not the first. It has what the file lists and nothing else,
// so the file tells whether it fits together.
func (o *object) checkOther(s broker.NamespaceSetup) {
	if s.Name == "" {
		o.failf(o.at, "a namespace after the first has no Name, so that no client could name it")
		return
	}
	if len(o.errs) > 0 {
		return // which would be said again
	}
	if !o.check(o.at, broker.Config{Namespaces: []broker.NamespaceSetup{s}}) {
		return
	}
	known := map[string]bool{}
	for _, q := range s.Queues {
		known[strings.ToLower(q.Name)] = true
	}
	for _, t := range s.Topics {
		known[strings.ToLower(t.Name)] = true
	}
	for _, f := range o.forwards {
		if name := entities.Target(f.To); !known[strings.ToLower(name)] {
			o.errs = append(o.errs, &SyntaxError{f.Line, fmt.Sprintf("%s: namespace %q has no queue or topic %q", f.What, s.Name, name)})
		}
	}
	o.forwards = nil
}

// check reports whether the broker takes what stands at v, and notes what it has
// against it.
func (r *reader) check(v *hujson.Value, c broker.Config) bool {
	b, err := broker.New(c)
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		r.failf(v, "%s", strings.ReplaceAll(err.Error(), broker.ErrInvalidConfig.Error()+": ", ""))
	}
	return err == nil
}

func (r *reader) checkSubscription(v *hujson.Value, topic string, s broker.SubscriptionSetup) bool {
	return r.check(v, broker.Config{Topics: []broker.TopicSetup{{
		TopicConfig: broker.TopicConfig{Name: topic}, Subscriptions: []broker.SubscriptionSetup{s},
	}}})
}

func (o *object) lock() time.Duration {
	return o.span("LockDuration", defaultLockDuration, adminapi.MinLockDuration, adminapi.MaxLockDuration)
}

func (o *object) timeToLive() time.Duration {
	return o.span("DefaultMessageTimeToLive", defaultTTL, adminapi.MinTimeToLive, math.MaxInt64)
}

func (o *object) window() time.Duration {
	return o.span("DuplicateDetectionHistoryTimeWindow", defaultDuplicateWindow, adminapi.MinWindow, adminapi.MaxWindow)
}

func (o *object) queue() broker.QueueConfig {
	p := o.child("Properties")
	c := broker.QueueConfig{
		Name:                                o.name,
		LockDuration:                        p.lock(),
		MaxDeliveryCount:                    p.count("MaxDeliveryCount", defaultMaxDeliveryCount),
		DefaultMessageTimeToLive:            p.timeToLive(),
		DeadLetteringOnMessageExpiration:    p.bool("DeadLetteringOnMessageExpiration"),
		RequiresSession:                     p.bool("RequiresSession"),
		RequiresDuplicateDetection:          p.bool("RequiresDuplicateDetection"),
		DuplicateDetectionHistoryTimeWindow: p.window(),
		ForwardTo:                           p.forward("ForwardTo"),
		ForwardDeadLetteredMessagesTo:       p.forward("ForwardDeadLetteredMessagesTo"),
	}
	o.check(o.at, broker.Config{Queues: []broker.QueueConfig{c}})
	p.end()
	o.end()
	return c
}

func (o *object) topic() broker.TopicSetup {
	p := o.child("Properties")
	t := broker.TopicSetup{TopicConfig: broker.TopicConfig{
		Name:                                o.name,
		DefaultMessageTimeToLive:            p.timeToLive(),
		RequiresDuplicateDetection:          p.bool("RequiresDuplicateDetection"),
		DuplicateDetectionHistoryTimeWindow: p.window(),
	}}
	name := o.name
	if !o.check(o.at, broker.Config{Topics: []broker.TopicSetup{t}}) {
		name = "topic" // its subscriptions are to be checked all the same
	}
	for _, s := range o.list("Subscriptions", "subscription", " of "+o.what) {
		t.Subscriptions = append(t.Subscriptions, s.subscription(name))
	}
	p.end()
	o.end()
	return t
}

func (o *object) subscription(topic string) broker.SubscriptionSetup {
	p := o.child("Properties")
	s := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
		Name:                             o.name,
		LockDuration:                     p.lock(),
		MaxDeliveryCount:                 p.count("MaxDeliveryCount", defaultMaxDeliveryCount),
		DefaultMessageTimeToLive:         p.timeToLive(),
		DeadLetteringOnMessageExpiration: p.bool("DeadLetteringOnMessageExpiration"),
		RequiresSession:                  p.bool("RequiresSession"),
		ForwardTo:                        p.forward("ForwardTo"),
		ForwardDeadLetteredMessagesTo:    p.forward("ForwardDeadLetteredMessagesTo"),
	}}
	name := o.name
	if !o.checkSubscription(o.at, topic, s) {
		name = "subscription"
	}
	for _, r := range o.list("Rules", "rule", " of "+o.what) {
		s.Rules = append(s.Rules, r.rule(func(v *hujson.Value, r broker.RuleConfig) {
			o.checkSubscription(v, topic, broker.SubscriptionSetup{
				SubscriptionConfig: broker.SubscriptionConfig{Name: name}, Rules: []broker.RuleConfig{r},
			})
		}))
	}
	p.end()
	o.end()
	return s
}

// rule lets check have its parts, with where they stand.
func (o *object) rule(check func(*hujson.Value, broker.RuleConfig)) broker.RuleConfig {
	defer o.end()
	r := broker.RuleConfig{Name: o.name}
	check(o.at, r)
	p := o.child("Properties")
	if p.at == nil {
		o.failf(o.at, "%s has no Properties", o.what)
		return r
	}
	defer p.end()
	kind, sql, correlation := p.string("FilterType"), p.child("SqlFilter"), p.child("CorrelationFilter")
	switch {
	case strings.EqualFold(kind, "Sql") && sql.at != nil && correlation.at == nil:
		text, at := sql.expression()
		r.Filter.SQL = &broker.SQLFilter{Expression: text}
		check(at, broker.RuleConfig{Name: "r", Filter: r.Filter})
	case strings.EqualFold(kind, "Correlation") && correlation.at != nil && sql.at == nil:
		r.Filter.Correlation = correlation.correlation()
	default:
		o.failf(p.at, `%s: FilterType has to be "Sql" with a SqlFilter, or "Correlation" with a CorrelationFilter`, o.what)
	}
	if action := p.child("Action"); action.at != nil {
		text, at := action.expression()
		r.Action.SQL = text
		check(at, broker.RuleConfig{Name: "r", Action: r.Action})
	}
	return r
}

func (o *object) expression() (string, *hujson.Value) {
	defer o.end()
	l, v := o.literal("SqlExpression", `"`, "a string")
	return l.String(), cmp.Or(v, o.at)
}

func (o *object) value(m *hujson.ObjectMember) any {
	l, _ := m.Value.Value.(hujson.Literal)
	switch l.Kind() {
	case '"':
		return l.String()
	case 't', 'f':
		return l.Bool()
	case '0':
		if n, err := strconv.ParseInt(string(l), 10, 64); err == nil {
			return n
		}
		return l.Float()
	}
	o.failf(&m.Value, "%s of %s has to be a string, a number, true or false", nameOf(m), o.what)
	return nil
}

func (o *object) correlation() *broker.CorrelationFilter {
	f := &broker.CorrelationFilter{}
	for _, field := range broker.CorrelationFields {
		*field.Of(f) = o.optional(field.Property.String())
	}
	properties := o.child("Properties")
	for i := range properties.members {
		m := &properties.members[i]
		f.Properties = append(f.Properties, queue.Property{Key: nameOf(m), Value: properties.value(m)})
	}
	o.end()
	return f
}

// A reader collects what is wrong with a file, and what it says in vain.
type reader struct {
	text     []byte
	errs     []error
	warnings []*SyntaxError
	forwards []Forward
}

// line of a value, from 1.
func (r *reader) line(v *hujson.Value) int {
	return 1 + bytes.Count(r.text[:v.StartOffset], []byte("\n"))
}

func (r *reader) failf(v *hujson.Value, format string, args ...any) {
	r.errs = append(r.errs, &SyntaxError{r.line(v), fmt.Sprintf(format, args...)})
}

func (r *reader) warnf(v *hujson.Value, format string, args ...any) {
	r.warnings = append(r.warnings, &SyntaxError{r.line(v), fmt.Sprintf(format, args...)})
}

// An object is one of the file. Keys that nobody has taken of it when it ends have no effect.
type object struct {
	*reader
	at      *hujson.Value // nil: there is none
	what    string        // as errors call it
	name    string        // its Name, where it is of a list
	members []hujson.ObjectMember
	taken   map[string]bool // by names in lower case
}

func (r *reader) object(v *hujson.Value, what string) *object {
	o := &object{reader: r, at: v, what: what, taken: map[string]bool{}}
	if v == nil {
		return o
	}
	if read, is := v.Value.(*hujson.Object); is {
		o.members = read.Members
	} else {
		r.failf(v, "%s is no object", what)
	}
	return o
}

func nameOf(m *hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

// take returns the value of a name, whatever its case; nil for null, and where
// there is none. Where a name is stated twice, the last one counts.
func (o *object) take(name string) *hujson.Value {
	o.taken[strings.ToLower(name)] = true
	var found *hujson.Value
	for i := range o.members {
		if m := &o.members[i]; strings.EqualFold(nameOf(m), name) {
			if found != nil {
				o.warnf(found, "%q is stated again, and the last one counts", name)
			}
			found = &m.Value
		}
	}
	if found != nil && found.Value.Kind() == 'n' {
		return nil
	}
	return found
}

// end notes what was not taken.
func (o *object) end() {
	for i := range o.members {
		if m := &o.members[i]; !o.taken[strings.ToLower(nameOf(m))] {
			o.warnf(&m.Name, "%q is not a property that the emulator knows here", nameOf(m))
		}
	}
}

// child returns an object of this one. Errors name the entity that Properties are
// those of.
func (o *object) child(name string) *object {
	c := o.object(o.take(name), name+" of "+o.what)
	if name == "Properties" {
		c.what = o.what
	}
	return c
}

// list returns the objects of a list, which have names. of says whose they are.
func (o *object) list(name, kind, of string) (all []*object) {
	v := o.take(name)
	if v == nil {
		return nil
	}
	array, is := v.Value.(*hujson.Array)
	if !is {
		o.failf(v, "%s of %s is no list", name, o.what)
		return nil
	}
	seen := map[string]bool{}
	for i := range array.Elements {
		e := o.object(&array.Elements[i], "a "+kind+of)
		switch e.name = e.string("Name"); {
		case e.name == "" && kind != "namespace": // clients do not see that one
			e.failf(e.at, "%s has no Name", e.what)
			e.name = kind
		case seen[strings.ToLower(e.name)]:
			e.failf(e.at, "there is another %s %q%s; names differ by more than upper and lower case", kind, e.name, of)
		}
		seen[strings.ToLower(e.name)] = true
		e.what = fmt.Sprintf("%s %q%s", kind, e.name, of)
		all = append(all, e)
	}
	return all
}

// literal takes a value that has to be of one of these kinds; nil where there is
// none.
func (o *object) literal(name, kinds, need string) (hujson.Literal, *hujson.Value) {
	v := o.take(name)
	if v == nil {
		return nil, nil
	}
	l, is := v.Value.(hujson.Literal)
	if !is || !strings.ContainsRune(kinds, rune(l.Kind())) {
		o.failf(v, "%s of %s has to be %s", name, o.what, need)
		return nil, nil
	}
	return l, v
}

func (o *object) string(name string) string {
	l, _ := o.literal(name, `"`, "a string")
	return l.String()
}

// optional is a string that may be absent.
func (o *object) optional(name string) *string {
	l, v := o.literal(name, `"`, "a string")
	if v == nil {
		return nil
	}
	return new(l.String())
}

func (o *object) bool(name string) bool {
	l, _ := o.literal(name, "tf", "true or false")
	return l.Bool()
}

// count is a number from 1 on.
func (o *object) count(name string, def int) int {
	l, v := o.literal(name, "0", "a number")
	if v == nil {
		return def
	}
	var n int32
	if err := json.Unmarshal(l, &n); err != nil || n < 1 {
		o.failf(v, "%s of %s is %s; give a whole number from 1 to %d", name, o.what, l, math.MaxInt32)
	}
	return int(n)
}

// span is a duration within bounds. The longest there is, and what is longer, is
// forever, which is 0.
func (o *object) span(name string, def, low, high time.Duration) time.Duration {
	l, v := o.literal(name, `"`, "a duration")
	if v == nil {
		return def
	}
	switch d, ok := iso.ParseISO8601(l.String()); {
	case !ok:
		o.failf(v, "%s of %s: %.50q is no duration; write one like PT1M or P1DT12H", name, o.what, l.String())
	case d < low, d > high:
		most := iso.Forever
		if high < math.MaxInt64 {
			most = iso.FormatISO8601(high)
		}
		o.failf(v, "%s of %s is %s; it has to be between %s and %s", name, o.what, l.String(), iso.FormatISO8601(low), most)
	case d < math.MaxInt64:
		return d
	}
	return 0
}

// forward notes where an entity forwards to.
func (o *object) forward(name string) string {
	l, v := o.literal(name, `"`, "a string")
	if l.String() != "" {
		o.forwards = append(o.forwards, Forward{o.line(v), name + " of " + o.what, l.String()})
	}
	return l.String()
}
