// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

const (
	// checkTimeout bounds one request to the namespace.
	checkTimeout = 15 * time.Second
	// maxEntities is how many queues, and how many topics, are examined if none is listed.
	maxEntities = 100
	// parallel is how many entities are examined at a time.
	parallel = 8
)

// Config says what to examine. Host, Dial, Links and MonitorQueue are required.
type Config struct {
	Host     string // of the namespace
	Emulator bool   // the Azure CLI cannot change it
	Dial     func(context.Context) (net.Conn, error)
	Links    *link.Namespace
	Admin    *entities.Admin // nil: there is no administration API; NoAdmin says why
	NoAdmin  string

	MonitorQueue      string
	MonitorQueues     int  // how many there are, of which MonitorQueue is the first; 0 = 1
	CompanionsInRedis bool // the monitor queue only shows the broker's clock
	Proxy, Monitor    bool // the roles whose rights to check
	ClientTokens      bool // apps show their own tokens, so the proxy needs no right to send for them

	Entities     []Monitored
	OnlyEntities bool          // examine nothing but Entities; otherwise everything else in the namespace as well
	Deadline     time.Duration // of messages without one in entities without one; 0 = none
	ListsAll     bool          // the configuration lists what is monitored
	Unmonitored  []string      // entities that receive events, and so are not monitored
	Targets      []Target
	// IsUnalerted reports whether there are sinks, and none of them gets the missed deadlines of a
	// queue or topic. nil: there are no sinks.
	IsUnalerted func(name string) bool
	// Clock measures how far the broker's clock is ahead of ours, and how wrong that can be.
	Clock func(context.Context) (ahead, uncertainty time.Duration, err error)
	Redis *Redis // nil: there is none
	// BrokerDirectory is the directory of the embedded broker. "": there is none.
	BrokerDirectory string
	// Others are checks of other things than Service Bus, such as sinks. They run in order.
	Others []Check
}

// Only restricts the examination to the entities with these names. The configuration of these
// entities is kept.
func (c *Config) Only(names []string) {
	configured := c.Entities
	c.OnlyEntities, c.Entities = true, nil
	for _, name := range names {
		m := Monitored{Name: name}
		for _, known := range configured {
			if sameName(known.Name, name) {
				m = known
			}
		}
		c.Entities = append(c.Entities, m)
	}
}

// A Target is an entity that Overdue itself sends to.
type Target struct {
	Name, Setting string
}

// A Check is about one thing. The error of Run says what is wrong.
type Check struct {
	Subject, Name string
	Passed        string // the sentence if nothing is wrong; "": there is nothing to say then
	Fix           string
	Severity      Severity // of a failure
	Run           func(context.Context) error
}

// examiner is one examination.
type examiner struct {
	cfg          Config
	reachable    bool          // over AMQP, and it takes our token
	adminAnswers bool          // if only to say that we lack the right
	missing      bool          // a monitor queue does not exist
	roundTrip    time.Duration // 0 = not measured
	tier         string        // "" = unknown
	measured     *measurement  // of the broker's clock; nil: not yet

	mu       sync.Mutex // guards roundTrip and prefetch: entities are examined in parallel
	prefetch bool       // advise on prefetch
}

// queues are the monitor queues.
func (x *examiner) queues() monitorqueue.Queues {
	return monitorqueue.Of(x.cfg.MonitorQueue, x.cfg.MonitorQueues)
}

// Examine makes all checks. When ctx ends, it returns early with what it has.
func Examine(ctx context.Context, cfg Config) *Report {
	x := &examiner{cfg: cfg}
	r := &Report{Namespace: cfg.Host}
	r.add(x.namespace(ctx))
	if x.reachable || x.adminAnswers {
		for _, name := range x.queues().Names() {
			r.add(x.monitorQueue(ctx, name))
		}
		r.add(x.formerQueues(ctx))
		r.add(x.clock(ctx))
		r.add(x.entities(ctx))
		r.add(x.targets(ctx))
		r.add(x.sideEffects())
	} else {
		r.Findings = append(r.Findings, Finding{Subject: "namespace", Check: "rest", Severity: Unknown, Summary: "Its entities, rights and clock could not be checked."})
	}
	r.add(ExamineOthers(ctx, cfg).Findings)
	// Keep the findings of one subject together, in the order of the first of each.
	order := subjectsOf(r.Findings)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return slices.Index(order, a.Subject) - slices.Index(order, b.Subject) })
	return r
}

// ExamineOthers makes only the checks of other things than Service Bus.
func ExamineOthers(ctx context.Context, cfg Config) *Report {
	x, r := &examiner{cfg: cfg}, &Report{Namespace: cfg.Host, Findings: []Finding{}}
	r.add(x.others(ctx))
	return r
}

func (r *Report) add(all []Finding) { r.Findings = append(r.Findings, all...) }

// namespace checks what everything else depends on.
func (x *examiner) namespace(ctx context.Context) []Finding {
	n := &notes{subject: "namespace"}
	began := time.Now()
	dialing, cancel := context.WithTimeout(ctx, checkTimeout)
	c, err := x.cfg.Dial(dialing)
	cancel()
	var dns *net.DNSError
	switch {
	case err == nil:
		_ = c.Close() // nothing was sent
		n.add(OK, "reachable", fmt.Sprintf("%s accepts connections (%s).", x.cfg.Host, time.Since(began).Round(100*time.Microsecond)), "")
	case errors.As(err, &dns):
		n.add(Error, "reachable", fmt.Sprintf("The name %s cannot be resolved: %v.", dns.Name, err), "check the setting namespace for a typo, and the DNS of this machine (a private endpoint has a private zone)")
	default:
		fix := "check the setting namespace, and that the emulator runs"
		if !x.cfg.Emulator {
			fix = "check the setting namespace, and that firewalls, including the one of the namespace, let this machine reach port 5671 (AMQP over TLS)"
		}
		says := err.Error()
		if certificate, renew := failure.Certificate(err); certificate != "" {
			says, fix = certificate, renew
		}
		n.add(Error, "reachable", fmt.Sprintf("%s cannot be reached: %s.", x.cfg.Host, says), fix)
	}
	if err == nil {
		x.signIn(ctx, n)
	}
	x.administration(ctx, n)
	return n.all
}

// signIn checks whether the namespace takes our token, whatever rights that has.
func (x *examiner) signIn(ctx context.Context, n *notes) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, err := x.cfg.Links.Peeker(ctx, x.cfg.MonitorQueue)
	if err == nil {
		p.Close(ctx)
	}
	answer := (*link.StatusError)(nil)
	refused := errors.As(err, &answer)
	switch condition := failure.Condition(err); {
	case err == nil, condition == link.ConditionNotFound, condition == link.ConditionUnauthorized && !refused:
		x.reachable = true // a right can be refused only after the token was taken
		n.add(OK, "sign-in", "It accepts the token.", "")
	case refused:
		n.add(Error, "sign-in", fmt.Sprintf("It refuses the token: %s.", failure.Reason(err)), "check SharedAccessKeyName and SharedAccessKey in the connection string (the key may have been rotated), or that the identity belongs to the tenant of the namespace; the clock of this machine must not be wrong by minutes")
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		n.add(Error, "sign-in", "It accepts connections, and does not answer.", "look at the state of the namespace, and at proxies and firewalls on the way")
	default:
		n.add(Error, "sign-in", fmt.Sprintf("Signing in failed: %s.", failure.Reason(err)), "check the setting namespace: if it has no key, Overdue uses the Azure identity of this machine (az login, AZURE_CLIENT_ID, workload identity)")
	}
}

// administration asks the administration API for the tier.
func (x *examiner) administration(ctx context.Context, n *notes) {
	switch {
	case x.cfg.Admin == nil:
		n.add(Unknown, "administration", sentence(x.cfg.NoAdmin), "set namespaceAdmin")
		return
	case ctx.Err() != nil:
		return
	}
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	tier, err := x.cfg.Admin.Tier(asking)
	certificate, renew := failure.Certificate(err)
	x.tier, x.adminAnswers = tier, err == nil || errors.Is(err, entities.ErrNoRight) && x.reachable
	switch {
	case errors.Is(err, entities.ErrNoRight) && !x.reachable:
		n.add(Unknown, "tier", fmt.Sprintf("The tier is unknown (%s).", failure.Reason(err)), "")
	case errors.Is(err, entities.ErrNoRight):
		n.add(Unknown, "tier", fmt.Sprintf("The tier is unknown without the Manage right on the namespace (%s).", failure.Reason(err)), x.manage())
	case err != nil && certificate != "":
		severity := map[bool]Severity{true: Warning, false: Unknown}[x.reachable]
		n.add(severity, "administration", fmt.Sprintf("The administration API cannot be asked: %s.", certificate), renew)
	case err != nil && x.reachable:
		n.add(Warning, "administration", fmt.Sprintf("The administration API does not answer: %s. Without it, Overdue does not know the settings of entities.", failure.Reason(err)),
			"let this machine reach port 443 of the namespace, or set another address in namespaceAdmin; otherwise state the settings in monitor.entities (docs/operate/rights.md)")
	case err != nil:
		n.add(Unknown, "administration", fmt.Sprintf("The administration API does not answer either: %s.", failure.Reason(err)), "")
	case tier == "Basic" && x.cfg.CompanionsInRedis:
		n.add(OK, "tier", "The tier is Basic, which suffices because Redis keeps the companions.", "")
	case tier == "Basic":
		fix := "upgrade to the tier Standard or Premium, or keep the companions in Redis (companionStore: redis)"
		if !x.cfg.Emulator {
			name, _, _ := strings.Cut(x.cfg.Host, ".")
			fix = fmt.Sprintf("az servicebus namespace update --resource-group <group> --name %s --sku Standard; or keep the companions in Redis (companionStore: redis)", name)
		}
		n.add(Error, "tier", "The tier is Basic, which has no scheduled messages, so companions cannot wait on the monitor queue.", fix)
	default:
		n.add(OK, "tier", fmt.Sprintf("The tier is %s.", tier), "")
	}
}

// manage says how to grant the right to read settings.
func (x *examiner) manage() string {
	if x.cfg.Emulator {
		return "give the key the Manage right"
	}
	return "use a key with Manage, or give the identity the role Azure Service Bus Data Owner; otherwise state the settings in monitor.entities (docs/operate/rights.md)"
}

// A measurement is how far the broker's clock is ahead of ours.
type measurement struct {
	ahead, uncertainty time.Duration
	err                error
}

// measure measures the broker's clock, once.
func (x *examiner) measure(ctx context.Context) *measurement {
	if x.measured == nil {
		x.measured = &measurement{}
		if x.cfg.Clock != nil {
			ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
			defer cancel()
			x.measured.ahead, x.measured.uncertainty, x.measured.err = x.cfg.Clock(ctx)
		}
	}
	return x.measured
}

// clock compares the broker's clock with ours.
func (x *examiner) clock(ctx context.Context) []Finding {
	n := &notes{subject: "clock"}
	if x.cfg.Clock == nil || !x.reachable || x.missing {
		return nil
	}
	m := x.measure(ctx)
	ahead, uncertainty, err := m.ahead, m.uncertainty, m.err
	if failure.Condition(err) == "amqp:resource-limit-exceeded" {
		n.subject = "monitor queue " + x.cfg.MonitorQueue
		n.add(Error, "room", fmt.Sprintf("It takes no more companions: %s.", failure.Reason(err)), "let a monitor receive from it, empty its dead-letter queue, or make it larger")
		return n.all
	}
	if err != nil {
		fix := "fix the findings about the monitor queue, where the clock is measured"
		if link.Unauthorized(err) {
			fix = "grant the Send and Listen rights on the monitor queue"
		}
		n.add(Unknown, "offset", fmt.Sprintf("The broker's clock cannot be measured: %s.", failure.Reason(err)), fix)
		return n.all
	}
	off, word := ahead.Abs(), "behind"
	if ahead < 0 {
		word = "ahead of"
	}
	text := fmt.Sprintf("The clock of this machine is %s %s the broker's (±%s).", off.Round(time.Millisecond), word, uncertainty.Round(time.Millisecond))
	if off <= uncertainty {
		text = fmt.Sprintf("The clock of this machine agrees with the broker's (±%s).", uncertainty.Round(time.Millisecond))
	}
	const fix = "synchronize the clock of this machine with NTP (timedatectl set-ntp true)"
	switch {
	case off > 5*time.Minute+uncertainty:
		n.add(Error, "offset", text+" Tokens made here may count as expired, or as not yet valid.", fix)
	case off > time.Second+uncertainty:
		n.add(Warning, "offset", text+" Overdue corrects for it, but absolute deadlines (overdue-deadline) that apps state by this clock are wrong by as much.", fix)
	default:
		n.add(OK, "offset", text, "")
	}
	return n.all
}

// entities checks what is monitored.
func (x *examiner) entities(ctx context.Context) []Finding {
	all := slices.Clone(x.cfg.Entities)
	var found []Finding
	if !x.cfg.OnlyEntities {
		n := &notes{subject: "monitored entities"}
		all = append(all, x.discover(ctx, n, all)...)
		found = n.all
	}
	each := make([][]Finding, len(all))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range all {
		g.Go(func() error {
			each[i] = x.entity(ctx, &all[i])
			return nil
		})
	}
	_ = g.Wait() // no check returns an error
	return append(found, slices.Concat(each...)...)
}

// discover lists what is monitored if the configuration lists nothing.
func (x *examiner) discover(ctx context.Context, n *notes, known []Monitored) (all []Monitored) {
	if x.cfg.Admin == nil {
		n.add(Unknown, "list", "The queues and topics are unknown, and monitor.entities lists none.", "name them: overdue doctor orders events")
		return nil
	}
	for _, kind := range []entities.Kind{entities.Queue, entities.Topic} {
		asking, cancel := context.WithTimeout(ctx, checkTimeout)
		names, more, err := x.cfg.Admin.List(asking, kind, maxEntities)
		cancel()
		if err != nil {
			n.add(Unknown, "list", fmt.Sprintf("The queues and topics could not be listed: %s.", failure.Reason(err)), "name them: overdue doctor orders events")
			return all
		}
		if more {
			n.add(Advice, "list", fmt.Sprintf("There are more than %d %ss, and only the first of them were checked.", maxEntities, kind), "name the important ones: overdue doctor orders events")
		}
		for _, name := range names {
			same := func(o string) bool { return sameName(o, name) }
			if x.queues().Has(name) || slices.ContainsFunc(x.cfg.Unmonitored, same) ||
				slices.ContainsFunc(known, func(m Monitored) bool { return sameName(m.Name, name) }) {
				continue
			}
			all = append(all, Monitored{Name: name, Topic: kind == entities.Topic})
		}
	}
	if len(all)+len(known) == 0 {
		n.add(Advice, "list", "The namespace has no queues or topics to monitor.", "")
	}
	return all
}

// others makes the checks of other things than the namespace.
func (x *examiner) others(ctx context.Context) []Finding {
	all := append(directoryFindings(x.cfg.BrokerDirectory), x.redis(ctx)...)
	for _, c := range x.cfg.Others {
		all = append(all, c.examine(ctx)...)
	}
	return all
}

// examine makes the check.
func (c Check) examine(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	n := &notes{subject: c.Subject}
	err := c.Run(ctx)
	switch certificate, renew := failure.Certificate(err); {
	case err == nil && c.Passed == "":
	case err == nil:
		n.add(OK, c.Name, c.Passed, "")
	case certificate != "":
		n.add(c.Severity, c.Name, sentence(certificate), renew)
	default:
		n.add(c.Severity, c.Name, sentence(err.Error()), c.Fix)
	}
	return n.all
}

// sideEffects advises on what consumers and others notice of Overdue.
func (x *examiner) sideEffects() []Finding {
	n := &notes{subject: "side effects"}
	if x.prefetch {
		n.add(Advice, "prefetch", "Messages in the prefetch buffer of a consumer are locked, and count as received before the consumer sees them.",
			"set the prefetch of consumers to what they can handle well within the deadline")
	}
	if x.tier == "Premium" {
		n.add(Advice, "event-grid", "The monitor listens for a moment at each deadline, so Event Grid may send ActiveMessagesAvailableWithNoListeners later.",
			"do not start consumers by that event alone")
	}
	return n.all
}
