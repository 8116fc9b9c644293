// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/redistest"
	"overdue/internal/testing/testseed"
	"overdue/monitor/search"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Four promises hold, whatever is sent to any kind of entity, and whatever consumers, monitors and
// clocks do. A message that nobody has settled by its deadline is expired, never early, and
// notified once. A message that was settled is neither. A message that is not overdue stays as it
// is. Nothing is left on the monitor queue. OVERDUE_SCENARIOS plays more of them. Each scenario has
// its own chances, so one can be played alone: with the same OVERDUE_SEED and OVERDUE_SCENARIOS,
// and -run 'TestWhateverHappens/^n$'.
func TestWhateverHappens(t *testing.T) {
	seed, n := testseed.Of(t), uint64(racetest.Sized(40, 8))
	if text := os.Getenv("OVERDUE_SCENARIOS"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 32); err != nil {
			t.Fatalf("OVERDUE_SCENARIOS: %v", err)
		}
	}
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			playScenario(t, seed, i)
		})
	}
}

func playScenario(t *testing.T, seed, i uint64, quirks ...quirk.Set) {
	p := drawPlan(rand.New(rand.NewPCG(seed, i)))
	p.drawReminders(rand.New(rand.NewPCG(seed, ^i)))
	p.drained = rand.New(rand.NewPCG(^seed, i)).IntN(5) == 0
	if len(quirks) == 0 { // one strangeness at a time
		p.drawFaults(rand.New(rand.NewPCG(^seed, ^i)))
	}
	configure := []func(*scene, *broker.Config){p.configure}
	inStore := i%8 == 3
	if inStore {
		p.measured = true // or nothing becomes due
		configure = append(configure, inRedis(redistest.Start(t).Addr))
	}
	for _, q := range quirks {
		p.quirks |= q
	}
	t.Log(p, p.warnings, inStore, p.drained, p.quirks, p.faults)
	play(t, func(s *scene) { p.play(s, seed^i).check() }, configure...)
}

// replay plays a scenario that once failed.
func replay(t *testing.T, seed, i uint64, quirks ...quirk.Set) {
	racetest.Skip(t, "scenarios that are drawn anew show the races")
	playScenario(t, seed, i, quirks...)
}

var keyOf = regexp.MustCompile(`<key-\d+>`)

// standing is where each message of a place is.
type standing struct {
	live map[string]queue.View
	dead map[string]queue.View // that were expired
}

func (p *played) check() {
	p.Helper()
	accepted := p.accepted()
	notified := p.events()
	p.forgetOldQueue()
	for i, at := range p.places {
		st := p.standing(at, p.seen[i])
		for key := range accepted {
			m := accepted[key]
			if label, ok := p.filters[at.subscription]; ok && m.label != label {
				continue
			}
			p.fate(at, m, st, p.seen[i], notified)
		}
		for key := range st.live {
			if _, ok := accepted[key]; !ok {
				p.Errorf("%s: %s stands there and was a duplicate", at.path, key)
			}
		}
		p.takeInnocents(at, st, i)
	}
	time.Sleep(innocent + p.offset.Abs())
	p.Settled(time.Minute)
	if dead := p.CompanionsKept().Dead; dead != 0 {
		p.Errorf("%d companions could not be done, want none", dead)
	}
	p.notifiedOfTheExpired()
	p.remindedInTime()
}

// notifiedOfTheExpired checks that every event is about a dead letter that was expired.
func (p *played) notifiedOfTheExpired() {
	p.Helper()
	times, keys := p.events(), map[string]bool{}
	p.countedAsUnknown(times)
	for _, at := range p.places {
		for _, v := range p.everDead(at.path) {
			keys[p.eventKey(at.subscription, v.SequenceNumber, v.MessageID)] = true
			n, one := p.notifiedOf(times, at, v), hasExpired(v)
			if n > 0 && !one && !p.mayAlertFalsely() && !p.eventsDiffer(v.MessageID, n) || one && !p.notifiedOften(v.MessageID, n) && !p.sharesStamp(at, v) && (n > 0 || !p.hasDoubtfulDefault(v)) {
				p.Errorf("%s: %s (number %d, enqueued %v), dead-lettered by %s, was notified of %d times", at.path, v.MessageID, v.SequenceNumber, v.EnqueuedTime, v.DeadLetterReason, n)
			}
		}
	}
	for k := range times {
		if !keys[k] && !p.mayAlertFalsely() && !p.several() {
			p.Errorf("notified of %s, which is no dead letter", k)
		}
	}
}

// countedAsUnknown checks that what has expired is notified of or counted as unknown, where somebody
// empties the dead-letter queue.
func (p *played) countedAsUnknown(times map[string]int) {
	p.Helper()
	if !p.drained || !p.onlyTheMonitorExpires() {
		return
	}
	silent, unknown := 0, 0.0
	for _, at := range p.places {
		unknown += p.Verdicts(at.path, "unknown")
		for _, v := range p.everDead(at.path) {
			if hasExpired(v) && p.notifiedOf(times, at, v) == 0 {
				silent++
			}
		}
	}
	if float64(silent) > unknown {
		p.Errorf("%d expired messages were not notified of, and %v are counted as unknown", silent, unknown)
	}
}

// notifiedOf is how many of these events by key are about the dead letter v. Where numbers change,
// letters with one message-id share a key.
func (p *played) notifiedOf(times map[string]int, at place, v queue.View) int {
	n := times[p.eventKey(at.subscription, v.SequenceNumber, v.MessageID)]
	if p.anyOf(quirk.DeadLettersRenumbered) {
		for _, o := range p.everDead(at.path) {
			if o.MessageID == v.MessageID && o.SequenceNumber != v.SequenceNumber && hasExpired(o) {
				n--
			}
		}
	}
	return max(n, 0)
}

func hasExpired(v queue.View) bool {
	return v.DeadLetterReason == "TTLExpiredException" || v.DeadLetterReason == "DeadlineExceeded"
}

// mayAlertFalsely reports whether a monitor may take a message that a consumer settles past the
// endpoints for expired. Over a line that was frozen, the monitor's state from right before its
// nudge is old.
func (p *played) mayAlertFalsely() bool { return p.drained && len(p.line) > 0 && p.consumers > 0 }

// notifiedOften reports whether n notifications are right for an expired message with that id. One
// is right. Where ids repeat within seconds, several monitors may notify of one message, and
// without a measured clock one message may be taken for the other. Without one, a monitor that
// stops also leaves the next one in doubt whether the id repeats.
func (p *played) notifiedOften(id string, n int) bool {
	if p.eventsDiffer(id, n) {
		return true
	}
	if n == 0 && p.step != 0 || n > 1 && (len(p.line) > 0 || p.step != 0) && len(p.changes) > 0 {
		// A stamp no longer says when a message was enqueued, or what was measured no longer says
		// what time it is. Or another monitor has a companion again that this one did not complete.
		return true
	}
	if n > 1 && p.changed > 0 && len(p.changes) > 0 {
		return true // what is read again after a change has a second companion, at another monitor
	}
	if n == 0 && p.drained { // another receive may have expired it, and left no trace: see countedAsUnknown
		return true
	}
	if !strings.HasPrefix(id, often) {
		return n == 1 || n > 1 && !p.measured && len(p.changes) > 0
	}
	return n == 1 || !p.measured || n > 1 && len(p.changes) > 0
}

// onlyTheMonitorExpires reports whether a message expires at a receive of one and the same monitor
// or not at all, at a time that its companion knows.
func (p *played) onlyTheMonitorExpires() bool {
	return p.expiry != queue.Eager && !p.anyOf(quirk.ExpiresAlone) && p.consumers == 0 && len(p.changes) == 0 && len(p.lives) == 0 && p.measured && len(p.line) == 0 && p.step == 0
}

// accepted are the messages that the broker has taken, by key: of those with one id the first,
// where it detects duplicates. In a partitioned entity it does so in each partition.
func (p *played) accepted() map[string]drawnMessage {
	out, ids := map[string]drawnMessage{}, map[string]bool{}
	for _, b := range p.batches {
		for _, m := range b.messages {
			if p.before[m.key] {
				continue
			}
			id := m.id
			if p.kind == "partitioned" {
				id += "/" + m.session
			}
			if p.duplicates && ids[id] {
				continue
			}
			ids[id], out[m.key] = true, m
		}
	}
	return out
}

// forgetOldQueue drops the dead letters that were taken from a queue that was deleted.
func (p *played) forgetOldQueue() {
	for path, letters := range p.taken {
		p.taken[path] = slices.DeleteFunc(letters, func(v queue.View) bool { return v.EnqueuedTime.Before(p.anew) })
	}
}

// events counts what was notified, of the queue that there is in the end.
func (p *played) events() map[string]int {
	notified := map[string]int{}
	for _, e := range p.Hook.Events() {
		if e.Type == alert.TypeMissed && !e.Data.EnqueuedTime.Before(p.anew) {
			notified[p.eventKey(e.Data.Subscription, e.Data.SequenceNumber, e.Subject)]++
		}
	}
	return notified
}

func (p *played) standing(at place, seen *history) standing {
	st := standing{map[string]queue.View{}, map[string]queue.View{}}
	for _, v := range p.Waiting(at.path) {
		key := string(keyOf.Find(v.Body))
		if _, ok := st.live[key]; ok {
			p.Errorf("%s: %s stands there twice", at.path, key)
		}
		st.live[key] = v
	}
	for _, v := range p.everDead(at.path) {
		key := string(keyOf.Find(v.Body))
		switch v.DeadLetterReason {
		case "TTLExpiredException", "DeadlineExceeded":
			st.dead[key] = v
		case "MaxDeliveryCountExceeded":
			seen.settled[key] = true
		}
	}
	return st
}

// deadline is when a message becomes overdue by what the broker has stamped; zero: never.
func (p *played) deadline(at place, m drawnMessage, v queue.View) time.Time {
	base := v.EnqueuedTime
	if v.ScheduledEnqueueTime.After(base) {
		base = v.ScheduledEnqueueTime
	}
	life := m.life
	if most := p.longest(at); most > 0 && (life == 0 || most < life) {
		life = most
	}
	var end time.Time
	if life > 0 {
		end = base.Add(life)
	}
	if p.changed > 0 {
		end = v.ExpiresAt // by the settings that it was enqueued with
	}
	stated := p.due[m.key]
	if m.within > 0 {
		stated = base.Add(m.within)
	}
	if !stated.IsZero() && (end.IsZero() || stated.Before(end)) {
		end = stated
	}
	return end
}

// fate checks what became of one message at one place.
func (p *played) fate(at place, m drawnMessage, st standing, seen *history, notified map[string]int) {
	p.Helper()
	live, lives := st.live[m.key]
	dead, expired := st.dead[m.key]
	settled := seen.settled[m.key] || seen.unsure[m.key] && !lives && !expired
	where := fmt.Sprintf("%s: %s %+v", at.path, m.key, m)
	switch {
	case lives && (expired || settled), expired && settled:
		p.Errorf("%s: lives %v, expired %v, settled %v; want one", where, lives, expired, settled)
	case lives:
		if due := p.deadline(at, m, live); !due.IsZero() && !due.After(p.Namespace.Broker.Now()) && p.step >= 0 && !p.unreachable() && !p.hasDoubtfulDefault(live) {
			p.Errorf("%s: stands there %v after its deadline, state %v", where, p.Namespace.Broker.Now().Sub(due), live.State)
		}
		most := seen.delivered[m.key]
		if p.consumers > 0 {
			most += 2 // a consumer that gives up, or crashes, may not have noticed what it was sent
		}
		most += len(p.line) + min(p.changed, 1) // what was on its way to the monitor stays locked: a change detaches its link
		// What comes to a link that closes over a drain without an answer stays locked as well.
		if got := live.DeliveryCount; got > most && !p.anyOf(quirk.ReleaseCounts|quirk.DrainUnanswered) {
			p.Errorf("%s: delivery count %d, want %d at most", where, got, most)
		}
	case expired:
		p.expired(at, m, dead, seen, notified, where)
	case !settled:
		p.Errorf("%s: lost; consumers had it %d times", where, seen.delivered[m.key])
	}
}

// hasDoubtfulDefault reports whether v may be older than the default time to live, as far as a
// monitor knows. Either it was enqueued within a moment of the change, or it was scheduled: a
// companion that was adopted does not know when. Then only a nudge may expire v, and a live message before it
// stops each one.
func (p *played) hasDoubtfulDefault(v queue.View) bool {
	isNearChange := v.EnqueuedTime.Sub(p.changedAt).Abs() < search.WindowMargin
	isScheduled := !v.ScheduledEnqueueTime.IsZero()
	return p.expiry == queue.LazyHead && !p.changedAt.IsZero() && (isNearChange || isScheduled)
}

func (p *played) expired(at place, m drawnMessage, dead queue.View, seen *history, notified map[string]int, where string) {
	p.Helper()
	due := p.deadline(at, m, dead)
	lag := dead.DeadLetteredTime.Sub(due)
	if (due.IsZero() || lag < -p.earlier()-p.setBackUnseen()) && !p.anyOf(quirk.DeadLettersRestamped) {
		p.Errorf("%s: expired %v after its deadline %v, by %s", where, lag, due, dead.DeadLetterReason)
	}
	if n := p.notifiedOf(notified, at, dead); !p.notifiedOften(m.id, n) && !p.sharesStamp(at, dead) {
		p.Errorf("%s: expired (%s, %v late) and notified %d times, want once", where, dead.DeadLetterReason, lag, n)
	}
	bound := 3*time.Second + p.down() + p.slower() + p.outages() + p.step.Abs()
	if !p.measured {
		bound += p.offset.Abs()
	}
	if seen.delivered[m.key] == 0 && dead.DeliveryCount == 0 && !seen.crashed && (!at.sessions || p.consumers == 0) && lag > bound && !p.unreachable() {
		p.Errorf("%s: nobody had it, and it was expired %v after its deadline, want %v at most", where, lag, bound)
	}
}

// takeInnocents receives the live messages at a place, in half of the scenarios and where there are
// no sessions. It takes them in order, and all that do not belong to a consumer who has set them
// aside.
func (p *played) takeInnocents(at place, st standing, i int) {
	p.Helper()
	if at.sessions || p.consumers%2 == 0 || p.anyOf(quirk.ReleaseCounts|quirk.ReleaseLast) || p.unreachable() {
		return
	}
	var want []queue.View
	for _, v := range st.live {
		overdue := !v.ExpiresAt.IsZero() && !v.ExpiresAt.After(p.Namespace.Broker.Now()) // the receive would expire it
		if v.State == queue.Active && !overdue {
			want = append(want, v)
		}
	}
	slices.SortFunc(want, func(a, b queue.View) int { return int(a.SequenceNumber - b.SequenceNumber) })
	var r *azservicebus.Receiver
	var err error
	if at.subscription != "" {
		r, err = p.Client.NewReceiverForSubscription(topic, at.subscription, nil)
	} else {
		r, err = p.Client.NewReceiverForQueue(at.path, nil)
	}
	p.Must(err)
	var got []string
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	for len(got) < len(want) {
		ms, err := r.ReceiveMessages(ctx, len(want)-len(got), nil)
		if ctx.Err() != nil {
			break // one does not come
		}
		p.Must(err)
		for _, m := range ms {
			if v := st.live[string(m.Body)]; int(m.DeliveryCount) != v.DeliveryCount+1 {
				p.Errorf("%s: %s comes on delivery %d, want %d", at.path, m.Body, m.DeliveryCount, v.DeliveryCount+1)
			}
			got = append(got, string(m.Body))
			p.Must(r.CompleteMessage(p.Context(), m, nil))
		}
	}
	p.Must(r.Close(p.Context()))
	keys := make([]string, len(want))
	for j, v := range want {
		keys[j] = string(keyOf.Find(v.Body))
	}
	if p.kind == "partitioned" {
		slices.Sort(got)
		slices.Sort(keys)
	}
	if !slices.Equal(keys, got) {
		p.Errorf("%s: the living came as %s, want %s", at.path, strings.Join(got, " "), strings.Join(keys, " "))
	}
}
