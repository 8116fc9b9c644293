// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"math"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// The annotations of Service Bus. The broker alone states them, but for the
// first three, which a sender sets.
const (
	AnnScheduledEnqueueTime = "x-opt-scheduled-enqueue-time" // timestamp
	AnnPartitionKey         = "x-opt-partition-key"          // string
	AnnViaPartitionKey      = "x-opt-via-partition-key"      // string

	AnnSequenceNumber        = "x-opt-sequence-number"         // long
	AnnEnqueuedTime          = "x-opt-enqueued-time"           // timestamp
	AnnLockedUntil           = "x-opt-locked-until"            // timestamp, of the last lock
	AnnMessageState          = "x-opt-message-state"           // int, only when not active, see stateShown
	AnnDeadLetterSource      = "x-opt-deadletter-source"       // string
	AnnEnqueueSequenceNumber = "x-opt-enqueue-sequence-number" // long, only after auto-forward

	AnnLockToken = "x-opt-lock-token" // uuid; a delivery annotation
)

// The application properties with the reason of dead-lettering. They are strings unless a client
// sets something else.
const (
	PropDeadLetterReason      = "DeadLetterReason"
	PropDeadLetterDescription = "DeadLetterErrorDescription"
)

// ownAnnotation reports whether only the broker may state it. A message that
// was received and sent again carries them from its first life.
func ownAnnotation(name []byte) bool {
	if !bytes.HasPrefix(name, []byte("x-opt-")) {
		return false
	}
	switch string(name) {
	case AnnSequenceNumber, AnnEnqueuedTime, AnnLockedUntil, AnnMessageState,
		AnnDeadLetterSource, AnnEnqueueSequenceNumber, AnnLockToken:
		return true
	}
	return false
}

// An Overlay says how a stored message is shown.
type Overlay struct {
	Lock     queue.LockToken // zero: not locked by this delivery
	Until    time.Time       // when the lock lapses
	Peeked   bool            // seen in passing: the time to live is the message's own
	OmitBody bool            // no section for a body, as JavaScript's omitMessageBody wants it
}

// Delivered is the overlay of a message handed out under a lock.
func Delivered(d *queue.Delivery) Overlay { return Overlay{Lock: d.LockToken, Until: d.LockedUntil} }

// Append appends the encoded message v as a client gets it: header,
// annotations and what settlements have set laid over the sender's bytes. It
// fails only for bytes that ingest has not seen.
func Append(dst []byte, v *queue.View, o Overlay) ([]byte, error) {
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		return dst, err
	}
	h, err := amqp.DecodeHeader(m.Header)
	if err != nil {
		return dst, err
	}
	ttl := v.TTL
	if o.Peeked && v.EntityTTL {
		// The receive path applies the entity's default to a message; a peek does not show it.
		ttl = 0
	}
	h.DeliveryCount = uint32(v.DeliveryCount) // first-acquirer stays as sent
	h.TTL, h.HasTTL = Milliseconds(ttl), ttl > 0
	dst = h.Append(dst)

	dst = appendDeliveryAnnotations(dst, m.DeliveryAnnotations, o)
	dst = appendAnnotations(dst, m.MessageAnnotations, v, o)
	dst = appendProperties(dst, m.Properties, v, ttl)
	if dst, err = appendApplicationProperties(dst, m.ApplicationProperties, v); err != nil {
		return dst, err
	}
	if !o.OmitBody {
		dst = append(dst, m.Body...)
	}
	return appendSection(dst, amqp.CodeFooter, m.Footer), nil
}

// appendSection appends a section verbatim, and nothing when it is absent.
func appendSection(dst []byte, code uint64, raw amqp.Raw) []byte {
	if raw == nil {
		return dst
	}
	return append(amqp.AppendDescriptor(dst, code), raw...)
}

// beginOver begins a map with the pairs of the sender's map base, which holds
// none of ours since ingest, for ours to follow. Nothing is decoded.
func beginOver(dst []byte, base amqp.Raw) (out []byte, start, pairs int) {
	var foreign []byte
	if base != nil {
		r := amqp.NewReader(base)
		sub, n := r.Map()
		foreign, pairs = sub.Rest(), n
	}
	dst, start = amqp.BeginMap(dst)
	return append(dst, foreign...), start, pairs
}

// appendDeliveryAnnotations appends the delivery annotations. The service keeps
// those of the sender, though they are meant for one hop.
func appendDeliveryAnnotations(dst []byte, base amqp.Raw, o Overlay) []byte {
	if o.Lock == (queue.LockToken{}) {
		return appendSection(dst, amqp.CodeDeliveryAnnotations, base)
	}
	dst, start, pairs := beginOver(amqp.AppendDescriptor(dst, amqp.CodeDeliveryAnnotations), base)
	dst = amqp.AppendSymbol(dst, AnnLockToken)
	dst = amqp.AppendUUID(dst, amqp.UUID(o.Lock))
	return amqp.EndMap(dst, start, pairs+1)
}

// appendAnnotations appends the message annotations.
func appendAnnotations(dst []byte, base amqp.Raw, v *queue.View, o Overlay) []byte {
	dst, start, pairs := beginOver(amqp.AppendDescriptor(dst, amqp.CodeMessageAnnotations), base)
	dst = amqp.AppendSymbol(dst, AnnEnqueuedTime)
	dst = amqp.AppendTimestamp(dst, amqp.TimestampOf(v.EnqueuedTime))
	dst = amqp.AppendSymbol(dst, AnnSequenceNumber)
	dst = amqp.AppendLong(dst, v.SequenceNumber)
	pairs += 2
	if state := stateShown(v, o); state != queue.Active { // which the service leaves unsaid
		dst = amqp.AppendSymbol(dst, AnnMessageState)
		dst = amqp.AppendInt(dst, int32(state))
		pairs++
	}
	if o.Peeked {
		o.Until = v.LockedUntil // of a lock that may be over: a peek does not tell
	}
	if !o.Until.IsZero() {
		dst = amqp.AppendSymbol(dst, AnnLockedUntil)
		dst = amqp.AppendTimestamp(dst, amqp.TimestampOf(o.Until))
		pairs++
	}
	if v.DeadLetterSource != "" {
		dst = amqp.AppendSymbol(dst, AnnDeadLetterSource)
		dst = amqp.AppendString(dst, v.DeadLetterSource)
		pairs++
	}
	if v.EnqueuedSequenceNumber != 0 {
		dst = amqp.AppendSymbol(dst, AnnEnqueueSequenceNumber)
		dst = amqp.AppendLong(dst, v.EnqueuedSequenceNumber)
		pairs++
	}
	return amqp.EndMap(dst, start, pairs)
}

// stateShown is the state as a client reads it. A message that has waited for its scheduled enqueue
// time is still received as scheduled: see the JavaScript SDK's live tests of scheduleMessages, and
// azure-sdk-for-js pull request 19357. No source says which state a peek shows of it; here that is
// the truth, active.
func stateShown(v *queue.View, o Overlay) queue.State {
	if v.State == queue.Active && v.Activated && !o.Peeked {
		return queue.Scheduled
	}
	return v.State
}

// appendProperties appends the properties section. A message whose sender gave
// it no name has the broker's. Where it has a time to live the broker's word on
// its end replaces the sender's: clients trust it more than enqueued time plus
// time to live. A creation time moves along, because some take the difference of
// the two for the time to live, which has to be what the sender stated.
func appendProperties(dst []byte, base amqp.Raw, v *queue.View, ttl time.Duration) []byte {
	var fields amqp.Reader
	n, noID := 0, true
	if base != nil {
		r := amqp.NewReader(base)
		fields, n = r.List()
		_, has := amqp.ListField(base, amqp.PropertyMessageID)
		noID = !has
	}
	count := n
	name, end := noID && v.MessageID != "", ttl > 0 && !v.ExpiresAt.IsZero()
	_, made := amqp.ListField(base, amqp.PropertyCreationTime)
	made = made || ttl >= amqp.MaxTTL // else nobody could tell how long it lives
	switch {
	case end:
		if count = max(n, amqp.PropertyAbsoluteExpiryTime+1); made {
			count = max(n, amqp.PropertyCreationTime+1)
		}
	case name:
		count = max(n, amqp.PropertyMessageID+1)
	default:
		return appendSection(dst, amqp.CodeProperties, base)
	}
	dst = amqp.AppendDescriptor(dst, amqp.CodeProperties)
	dst, start := amqp.BeginList(dst)
	for i := range count {
		var field amqp.Raw
		if i < n {
			field = fields.Raw()
		}
		switch {
		case i == amqp.PropertyMessageID && name:
			dst = amqp.AppendString(dst, v.MessageID)
		case i == amqp.PropertyAbsoluteExpiryTime && end:
			dst = amqp.AppendTimestamp(dst, amqp.TimestampOf(v.ExpiresAt))
		case i == amqp.PropertyCreationTime && end && made:
			dst = amqp.AppendTimestamp(dst, amqp.TimestampOf(v.ExpiresAt)-amqp.Timestamp(ttl.Milliseconds()))
		default:
			dst = amqp.AppendRaw(dst, field)
		}
	}
	return amqp.EndList(dst, start, count)
}

// appendApplicationProperties appends the sender's application properties, with
// those over them that settlements have set.
func appendApplicationProperties(dst []byte, base amqp.Raw, v *queue.View) ([]byte, error) {
	if len(v.Properties) == 0 && v.DeadLetterReason == "" && v.DeadLetterErrorDescription == "" {
		return appendSection(dst, amqp.CodeApplicationProperties, base), nil
	}
	over := make(amqp.Map, 0, len(v.Properties)+2)
	for _, p := range v.Properties {
		if p.Key == PropDeadLetterReason && v.DeadLetterReason != "" ||
			p.Key == PropDeadLetterDescription && v.DeadLetterErrorDescription != "" {
			continue // each key once, and the later word counts
		}
		over = append(over, amqp.Pair{Key: p.Key, Value: p.Value})
	}
	if v.DeadLetterReason != "" {
		over = append(over, amqp.Pair{Key: PropDeadLetterReason, Value: v.DeadLetterReason})
	}
	if v.DeadLetterErrorDescription != "" {
		over = append(over, amqp.Pair{Key: PropDeadLetterDescription, Value: v.DeadLetterErrorDescription})
	}
	return amqp.OverlayMap(amqp.AppendDescriptor(dst, amqp.CodeApplicationProperties), base, over)
}

// Milliseconds is d as the header's ttl has it, which ends after 49.7 days: what is longer is the
// difference of absolute-expiry-time and creation-time.
func Milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), math.MaxUint32))
}

// Tag returns a lock token as delivery tag: in the byte order of a .NET GUID,
// whose first three parts are little-endian. Clients turn it back.
func Tag(t queue.LockToken) [16]byte {
	return [16]byte{
		t[3], t[2], t[1], t[0],
		t[5], t[4],
		t[7], t[6],
		t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15],
	}
}
