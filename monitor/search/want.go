// SPDX-License-Identifier: Apache-2.0

package search

import (
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// WindowMargin widens the window in which a message is searched for, since the clocks of broker
// nodes may differ. It MUST NOT be less than takeWindow of the scheduler, see decision 0010.
const WindowMargin = 250 * time.Millisecond

// StampPrecision is the unit of AMQP timestamps. The instant itself may be later by up to that.
const StampPrecision = time.Millisecond

// certainFor is how long after its send a message may be enqueued and be certainly not one of a
// later send. It MUST NOT exceed windowMargin.
const certainFor = WindowMargin

// Forever ends the window of a reference whose sender had not measured the clock of the broker.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Want is the search for one message.
type Want struct {
	Identity                         // of the message; zero: unknown
	Hint        int64                // its probable sequence number; 0: none
	Ref         *scheduler.Reference // of the message
	MessageID   string
	From, Until time.Time     // the window of its enqueued-time
	Likely      time.Time     // most likely it was enqueued at this instant or later
	Endless     bool          // its entity gives messages no time to live
	Since       time.Time     // it does so to those enqueued later than this, as stamps show
	Found       *link.Message // the result
	Spare       *link.Message // the result if there is no better one

	FirstFit      Identity  // of the first message that fits
	Duplicates    bool      // other messages fit, or may
	Agreed        bool      // a chooser has picked the result
	LateCandidate time.Time // the enqueued-time of a doubtful result
	UpTo          time.Time // of duplicates: the latest enqueued-time; zero: any
}

// A Chooser reports whether m, which matches, is the message of w. It then belongs to w alone.
// If not, m is a spare in case no other message matches.
type Chooser func(w *Want, m *link.Message) bool

// position is the sequence number to try first.
func (w *Want) position() int64 {
	if w.Number != 0 {
		return w.Number
	}
	return w.Hint
}

// Fits reports whether m matches: its message-id, an enqueued-time in the window, and a
// deadline.
func (w *Want) Fits(m *link.Message) bool {
	enqueued := m.EnqueuedTime
	return m.MessageID == w.MessageID && !enqueued.Before(w.From) && !enqueued.After(w.Until) && !w.NotWanted(m)
}

// NotWanted reports whether m is certainly another message, because it has no deadline of the
// kind that the reference states.
func (w *Want) NotWanted(m *link.Message) bool {
	return w.HasNoDeadline(m) && (w.Ref.Stated != "default" || !completes(w.Ref, m))
}

// HasNoDeadline reports whether m waits and states no deadline, although the wanted message has
// one. A dead letter is not judged by this, since it has expired.
func (w *Want) HasNoDeadline(m *link.Message) bool {
	if m.DeadLetterReason != "" || m.TimeToLive > 0 {
		return false
	}
	switch w.Ref.Stated {
	case "deadline", "within", "ttl":
	case "default": // of another subscription, or of other times
		if !w.Endless || m.EnqueuedTime.Before(w.Since.Add(StampPrecision)) || w.mayBeScheduledBefore(m) {
			return false
		}
	default:
		return false
	}
	return !StatesDeadline(m)
}

// mayBeScheduledBefore reports whether m was scheduled, and that may have been before Since: it got
// its time to live then.
func (w *Want) mayBeScheduledBefore(m *link.Message) bool {
	return !m.ScheduledEnqueueTime.IsZero() && (w.Ref.From.IsZero() || w.Ref.Sent.Before(w.Since))
}

// StatesDeadline reports whether m has a deadline in its properties, valid or not.
func StatesDeadline(m *link.Message) bool {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	return err != nil || !at.IsZero() || within > 0
}

// Pending reports whether m is scheduled and not activated yet. Its state does not show that,
// since it may remain "scheduled". Its stamp does: until the activation it is that of the send
// ("Message sequencing and timestamps").
func Pending(m *link.Message) bool {
	activated := m.ScheduledEnqueueTime
	if second := m.EnqueuedTime.Truncate(time.Second); second.Equal(m.EnqueuedTime) {
		activated = activated.Truncate(time.Second) // stamps may be whole seconds
	}
	return m.State == link.Scheduled && m.EnqueuedTime.Before(activated)
}

// completes reports whether the message of r must be completed by some instant.
func completes(r *scheduler.Reference, m *link.Message) bool {
	within, err := scheduler.StatedCompletion(func(name string) any { return m.Properties[name] })
	return err == nil && within > 0 || r.CompleteWithin > 0 || r.Stated == scheduler.StatedComplete
}

// Seek sets the window of a message that has not been seen yet.
func (w *Want) Seek(r *scheduler.Reference) {
	w.Ref, w.MessageID, w.Until = r, r.MessageID, Forever
	if !r.From.IsZero() {
		w.From, w.Likely, w.Until = r.From.Add(-WindowMargin), r.From, r.Until.Add(WindowMargin)
	}
}

// sent is when the message was most likely enqueued.
func (w *Want) sent() time.Time {
	if at := w.Ref.Sent; at.Before(w.Until) {
		return at
	}
	return w.Likely
}

// CheckStamp records whether the stamp of m, which was found for w, lies outside the probable
// time of its send. Then the right message may be another one.
func (w *Want) CheckStamp(m *link.Message) {
	switch at := m.EnqueuedTime; {
	case w.Likely.IsZero():
	case at.Before(w.Likely.Add(-StampPrecision)):
		w.Duplicates = true
	case at.After(w.Likely.Add(certainFor)) || at.After(w.Ref.Until.Add(StampPrecision)):
		w.LateCandidate = at
	}
}

// noteFit records that m matches.
func (w *Want) noteFit(m *link.Message) {
	switch n := IdentityOf(m); {
	case Pending(m) || n == w.FirstFit:
	case w.FirstFit == Identity{}:
		w.FirstFit = n
	default:
		w.Duplicates = true
	}
}

// Merge takes over the result of the same search at another place.
func (w *Want) Merge(o *Want) {
	if m := o.Found; m != nil && o.Number == 0 {
		o.CheckStamp(m)
	}
	w.FirstFit, w.Duplicates, w.Agreed, w.LateCandidate = o.FirstFit, w.Duplicates || o.Duplicates, w.Agreed || o.Agreed, duration.Later(w.LateCandidate, o.LateCandidate)
}
