// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

const (
	// patience bounds one question to the namespace.
	patience = 15 * time.Second
	// maxEntities is how many queues, and how many topics, are looked at where none is listed.
	maxEntities = 100
	// atOnce is how many entities are looked at at a time.
	atOnce = 8
)

// Config says what to examine. Host, Dial, Client, Links and MonitorQueue are needed.
type Config struct {
	Host     string // of the namespace
	Emulator bool   // the Azure CLI cannot change it
	Dial     func(context.Context) (net.Conn, error)
	Client   *azservicebus.Client
	Links    *link.Namespace
	Admin    *entities.Admin // nil: there is none to be asked; NoAdmin says why
	NoAdmin  string

	MonitorQueue   string
	Elsewhere      bool // companions do not wait on the monitor queue, which only tells the clock
	Proxy, Monitor bool // which roles the rights are for
	ClientTokens   bool // apps show their own tokens, so the proxy needs no right to send for them

	Entities  []Watched // empty: everything that is there
	Listed    bool      // Entities are all that is to be looked at; else more may be
	Lists     bool      // the configuration lists what is monitored
	Unwatched []string  // entities that are not monitored because they are told of missed deadlines
	Targets   []Target
	// Clock measures how far the broker's clock is ahead of ours, and how wrong that can be.
	Clock func(context.Context) (ahead, uncertainty time.Duration, err error)
	Redis *Redis // nil: there is none
	// Others are checks that have nothing to do with Service Bus, such as of sinks. They are made in order.
	Others []Check
}

// A Target is an entity that Overdue itself sends to.
type Target struct {
	Name, Setting string
}

// A Check asks for one thing; its error is a sentence about what is wrong.
type Check struct {
	Subject, Name string
	Well          string // what is said when it is well
	Fix           string
	Severity      Severity // of a failure
	Run           func(context.Context) error
}

// examiner is one examination.
type examiner struct {
	cfg       Config
	reachable bool          // and signed in, for AMQP
	told      bool          // the administration API answers, if only that it does not tell
	missing   bool          // there is no monitor queue
	roundTrip time.Duration // 0 = not measured
	tier      string        // "" = not known

	mu       sync.Mutex // guards prefetch, for entities are looked at side by side
	prefetch bool
}

// Examine makes all checks. It ends early, with what it has, when ctx does.
func Examine(ctx context.Context, cfg Config) *Report {
	x := &examiner{cfg: cfg}
	r := &Report{Namespace: cfg.Host}
	r.add(x.namespace(ctx))
	if x.reachable || x.told {
		r.add(x.monitorQueue(ctx))
		r.add(x.clock(ctx))
		r.add(x.entities(ctx))
		r.add(x.targets(ctx))
		r.add(x.sideEffects())
	} else {
		r.Findings = append(r.Findings, Finding{Subject: "namespace", Check: "rest", Severity: Unknown, Summary: "Its queues and topics, rights and clock could not be checked."})
	}
	r.add(ExamineOthers(ctx, cfg).Findings)
	// Findings about one subject stand together, in the order in which it came up.
	var order []string
	for i := range r.Findings {
		if s := r.Findings[i].Subject; !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return slices.Index(order, a.Subject) - slices.Index(order, b.Subject) })
	return r
}

// ExamineOthers makes only the checks that have nothing to do with Service Bus.
func ExamineOthers(ctx context.Context, cfg Config) *Report {
	x, r := &examiner{cfg: cfg}, &Report{Namespace: cfg.Host, Findings: []Finding{}}
	r.add(x.others(ctx))
	return r
}

func (r *Report) add(all []Finding) { r.Findings = append(r.Findings, all...) }

// namespace looks at what everything else rests on.
func (x *examiner) namespace(ctx context.Context) []Finding {
	n := &notes{subject: "namespace"}
	began := time.Now()
	dialling, cancel := context.WithTimeout(ctx, patience)
	c, err := x.cfg.Dial(dialling)
	cancel()
	var dns *net.DNSError
	switch {
	case err == nil:
		_ = c.Close() // it was opened for the asking
		n.add(OK, "reachable", fmt.Sprintf("%s takes connections (%s).", x.cfg.Host, time.Since(began).Round(100*time.Microsecond)), "")
	case errors.As(err, &dns):
		n.add(Error, "reachable", fmt.Sprintf("The name %s cannot be resolved: %v.", dns.Name, err), "check the setting namespace for typing errors, and the DNS of this machine (a private endpoint has a private zone)")
	default:
		fix := "check the setting namespace, and that the emulator runs"
		if !x.cfg.Emulator {
			fix = "check the setting namespace, and that firewalls, those of the namespace among them, let this machine reach port 5671 (AMQP over TLS)"
		}
		n.add(Error, "reachable", fmt.Sprintf("%s cannot be reached: %v.", x.cfg.Host, err), fix)
	}
	if err == nil {
		x.signIn(ctx, n)
	}
	x.administration(ctx, n)
	return n.all
}

// signIn tells whether the namespace takes our tokens, whatever they are good for.
func (x *examiner) signIn(ctx context.Context, n *notes) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := x.cfg.Links.Peeker(ctx, x.cfg.MonitorQueue)
	if err == nil {
		p.Close(ctx)
	}
	answer := (*link.StatusError)(nil)
	refused := errors.As(err, &answer)
	switch condition := conditionOf(err); {
	case err == nil, condition == notFound, condition == unauthorized && !refused:
		x.reachable = true // what there is to be refused is refused after the token was taken
		n.add(OK, "sign-in", "It takes our token.", "")
	case refused:
		n.add(Error, "sign-in", fmt.Sprintf("It refuses our token: %s.", Reason(err)), "check SharedAccessKeyName and SharedAccessKey in the connection string (they may have been rotated), or that the identity belongs to the tenant of the namespace; a token is refused as well where this machine's clock is wrong by minutes")
	default:
		n.add(Error, "sign-in", fmt.Sprintf("It cannot be signed in to: %s.", Reason(err)), "check the setting namespace: without a key in it, the Azure identity of this machine is used (az login, AZURE_CLIENT_ID, workload identity)")
	}
}

// administration asks what only the administration API tells.
func (x *examiner) administration(ctx context.Context, n *notes) {
	switch {
	case x.cfg.Admin == nil:
		n.add(Unknown, "administration", x.cfg.NoAdmin, "set namespaceAdmin")
		return
	case ctx.Err() != nil:
		return
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tier, err := x.cfg.Admin.Tier(asking)
	x.tier, x.told = tier, err == nil || errors.Is(err, entities.ErrNoRight) && x.reachable
	switch {
	case errors.Is(err, entities.ErrNoRight) && !x.reachable:
		n.add(Unknown, "tier", fmt.Sprintf("The tier is not told (%s).", Reason(err)), "")
	case errors.Is(err, entities.ErrNoRight):
		n.add(Unknown, "tier", fmt.Sprintf("The tier is not told without the right Manage of the namespace (%s).", Reason(err)), x.manage())
	case err != nil && x.reachable:
		n.add(Warning, "administration", fmt.Sprintf("The administration API does not answer: %s. Without it Overdue does not know how queues were made.", Reason(err)),
			"let this machine reach port 443 of the namespace, or name another address with namespaceAdmin; docs/operate/rights.md says what to write into monitor.entities otherwise")
	case err != nil:
		n.add(Unknown, "administration", fmt.Sprintf("The administration API does not answer either: %s.", Reason(err)), "")
	case tier == "Basic" && x.cfg.Elsewhere:
		n.add(OK, "tier", "The tier is Basic, and companions are kept in Redis.", "")
	case tier == "Basic":
		fix := "move to the tier Standard or Premium, or keep companions in Redis (companionStore: redis)"
		if !x.cfg.Emulator {
			name, _, _ := strings.Cut(x.cfg.Host, ".")
			fix = fmt.Sprintf("az servicebus namespace update --resource-group <group> --name %s --sku Standard; or keep companions in Redis (companionStore: redis)", name)
		}
		n.add(Error, "tier", "The tier is Basic, which has no scheduled messages: companions cannot wait on the monitor queue.", fix)
	default:
		n.add(OK, "tier", fmt.Sprintf("The tier is %s.", tier), "")
	}
}

// manage is how the right to read settings is given.
func (x *examiner) manage() string {
	if x.cfg.Emulator {
		return "give the key the right manage"
	}
	return "use a key with Manage, or give the identity the role Azure Service Bus Data Owner; without it, say in monitor.entities how the queues were made (docs/operate/rights.md)"
}

// clock compares the broker's clock with ours.
func (x *examiner) clock(ctx context.Context) []Finding {
	n := &notes{subject: "clock"}
	if x.cfg.Clock == nil || !x.reachable || x.missing {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	ahead, uncertainty, err := x.cfg.Clock(ctx)
	if err != nil {
		fix := "cure what is found of the monitor queue, where it is measured"
		if conditionOf(err) == unauthorized {
			fix = "it takes the rights Send and Listen on the monitor queue"
		}
		n.add(Unknown, "offset", fmt.Sprintf("The broker's clock cannot be measured: %s.", Reason(err)), fix)
		return n.all
	}
	off, word := ahead.Abs(), "behind"
	if ahead < 0 {
		word = "ahead of"
	}
	text := fmt.Sprintf("This machine's clock is %s %s that of the broker (±%s).", off.Round(time.Millisecond), word, uncertainty.Round(time.Millisecond))
	if off <= uncertainty {
		text = fmt.Sprintf("This machine's clock is that of the broker (±%s).", uncertainty.Round(time.Millisecond))
	}
	const cure = "let this machine follow NTP (timedatectl set-ntp true)"
	switch {
	case off > 5*time.Minute+uncertainty:
		n.add(Error, "offset", text+" Tokens that are made here may count as expired, or as not yet valid.", cure)
	case off > time.Second+uncertainty:
		n.add(Warning, "offset", text+" Overdue makes up for it; absolute deadlines (overdue-deadline) that apps state by this clock are off by as much.", cure)
	default:
		n.add(OK, "offset", text, "")
	}
	return n.all
}

// entities looks at what is monitored.
func (x *examiner) entities(ctx context.Context) []Finding {
	all := slices.Clone(x.cfg.Entities)
	var found []Finding
	if !x.cfg.Listed {
		n := &notes{subject: "monitored entities"}
		all = append(all, x.discover(ctx, n, all)...)
		found = n.all
	}
	each := make([][]Finding, len(all))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range all {
		g.Go(func() error {
			each[i] = x.entity(ctx, &all[i])
			return nil
		})
	}
	_ = g.Wait() // nothing there fails
	return append(found, slices.Concat(each...)...)
}

// discover names what is monitored because everything is.
func (x *examiner) discover(ctx context.Context, n *notes, known []Watched) (all []Watched) {
	if x.cfg.Admin == nil {
		n.add(Unknown, "list", "Which queues and topics there are is not known; nothing is listed in monitor.entities.", "name them: overdue doctor orders events")
		return nil
	}
	for _, kind := range []entities.Kind{entities.Queue, entities.Topic} {
		asking, cancel := context.WithTimeout(ctx, patience)
		names, more, err := x.cfg.Admin.List(asking, kind, maxEntities)
		cancel()
		if err != nil {
			n.add(Unknown, "list", fmt.Sprintf("Which queues and topics there are is not told: %s.", Reason(err)), "name them: overdue doctor orders events")
			return all
		}
		if more {
			n.add(Advice, "list", fmt.Sprintf("There are more than %d %ss; the first of them are looked at.", maxEntities, kind), "name those that matter: overdue doctor orders events")
		}
		for _, name := range names {
			same := func(o string) bool { return sameName(o, name) }
			if sameName(name, x.cfg.MonitorQueue) || slices.ContainsFunc(x.cfg.Unwatched, same) ||
				slices.ContainsFunc(known, func(w Watched) bool { return sameName(w.Name, name) }) {
				continue
			}
			all = append(all, Watched{Name: name, Topic: kind == entities.Topic})
		}
	}
	if len(all)+len(known) == 0 {
		n.add(Advice, "list", "The namespace has no queue and no topic to monitor.", "")
	}
	return all
}

// others looks at what is not of the namespace.
func (x *examiner) others(ctx context.Context) []Finding {
	all := x.redis(ctx)
	for _, c := range x.cfg.Others {
		all = append(all, x.other(ctx, c)...)
	}
	return all
}

// other makes one of the checks that are not about the namespace.
func (x *examiner) other(ctx context.Context, c Check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n := &notes{subject: c.Subject}
	if err := c.Run(ctx); err != nil {
		n.add(c.Severity, c.Name, sentence(err.Error()), c.Fix)
	} else {
		n.add(OK, c.Name, c.Well, "")
	}
	return n.all
}

// sideEffects is advice about what consumers and others notice of Overdue.
func (x *examiner) sideEffects() []Finding {
	n := &notes{subject: "side effects"}
	if x.prefetch {
		n.add(Advice, "prefetch", "Messages in the prefetch buffer of a consumer are locked, and count as received though nobody has seen them.",
			"set the prefetch of consumers to what they handle well within the deadline")
	}
	if x.tier == "Premium" {
		n.add(Advice, "event-grid", "With Event Grid, ActiveMessagesAvailableWithNoListeners counts who listens: the monitor does for a moment at each deadline, so the event may come later.",
			"do not let that event be the only one that starts a consumer")
	}
	return n.all
}
