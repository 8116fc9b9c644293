// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
)

// maxKept bounds the memory that a Writer keeps for the next messages.
const maxKept = 256 << 10

// A Writer schedules messages on one entity, over a connection of its own and past the AMQP client, whose goroutines hand a
// message to each other: it takes one write and one wake-up. It retries nothing. After an error it MUST be closed.
type Writer struct {
	ns      *Namespace
	conn    *conn
	entity  string
	tap     *tap
	maxSize uint64 // bytes of an encoded message; 0 = the entity names no bound

	bytes    []byte // encoded messages
	ends     []int  // of each in bytes
	payloads [][]byte
	frames   []byte
}

// A ScheduledMessage is a message that the broker is to enqueue at a time of its choosing.
type ScheduledMessage struct {
	MessageID, Subject, ContentType string
	Due                             time.Time
	Body                            []byte
}

// Writer opens one.
func (n *Namespace) Writer(ctx context.Context, entity string) (_ *Writer, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	socket, err := n.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("sblink: dial %s: %w", n.cfg.Host, err)
	}
	w := &Writer{ns: n, entity: entity, tap: newTap(socket, "overdue-direct-"+rand.Text())}
	opened, err := amqp.NewConn(ctx, w.tap, &amqp.ConnOptions{HostName: n.cfg.Host, SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return nil, fmt.Errorf("sblink: open connection to %s: %w", n.cfg.Host, err)
	}
	w.conn = &conn{amqp: opened, claiming: newTurn(), claims: map[string]time.Time{}}
	defer func() {
		if err != nil {
			w.Close(ctx)
		}
	}()
	if err := n.claim(ctx, w.conn, entity); err != nil {
		return nil, err
	}
	session, err := opened.NewSession(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("sblink: open session: %w", err)
	}
	link, err := session.NewSender(ctx, entity, &amqp.SenderOptions{
		Name: w.tap.name, SettlementMode: amqp.SenderSettleModeUnsettled.Ptr(), RequestedReceiverSettleMode: amqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		return nil, fmt.Errorf("sblink: open sender on %s: %w", entity, err)
	}
	w.maxSize = link.MaxMessageSize()
	return w, nil
}

// Add takes a message for the next Flush; its body may be used again afterwards. It reports false, and takes nothing, when
// the message is larger than the entity allows.
func (w *Writer) Add(m *ScheduledMessage) bool {
	start := len(w.bytes)
	w.bytes = appendScheduled(w.bytes, m)
	if w.maxSize != 0 && uint64(len(w.bytes)-start) > w.maxSize {
		w.bytes = w.bytes[:start]
		return false
	}
	w.ends = append(w.ends, len(w.bytes))
	return true
}

// Reset forgets what was added.
func (w *Writer) Reset() {
	if cap(w.bytes) > maxKept {
		w.bytes, w.frames = nil, nil
	}
	clear(w.payloads)
	w.bytes, w.ends, w.payloads = w.bytes[:0], w.ends[:0], w.payloads[:0]
}

// Flush writes what was added, and returns when the broker has accepted all of it. Otherwise some may have been accepted.
func (w *Writer) Flush(ctx context.Context) (err error) {
	defer w.Reset()
	if err := w.ns.claim(ctx, w.conn, w.entity); err != nil {
		return err
	}
	start := 0
	for _, end := range w.ends {
		w.payloads = append(w.payloads, w.bytes[start:end])
		start = end
	}
	if w.frames, err = w.tap.speak(ctx, w.payloads, w.frames); err != nil {
		return fmt.Errorf("sblink: write to %s: %w", w.entity, err)
	}
	return nil
}

// Err is why the Writer is of no more use, nil as long as it is.
func (w *Writer) Err() error {
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	return w.tap.err
}

// Close closes the connection, without a word to the peer once ctx has ended.
func (w *Writer) Close(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = w.tap.Close() })
	defer stop()
	_ = w.conn.amqp.Close() // how it ends says nothing of what was accepted
}

// appendScheduled encodes m as the SDK does.
func appendScheduled(b []byte, m *ScheduledMessage) []byte {
	b, start := codec.BeginMap(codec.AppendDescriptor(b, codec.CodeMessageAnnotations))
	b = codec.AppendSymbol(b, "x-opt-scheduled-enqueue-time")
	b = codec.AppendTimestamp(b, codec.TimestampOf(m.Due))
	b = codec.EndMap(b, start, 1)
	b, start = codec.BeginList(codec.AppendDescriptor(b, codec.CodeProperties))
	b = codec.AppendString(b, m.MessageID)
	b = codec.AppendNull(codec.AppendNull(b)) // user-id, to
	b = codec.AppendString(b, m.Subject)
	b = codec.AppendNull(codec.AppendNull(b)) // reply-to, correlation-id
	b = codec.AppendSymbol(b, codec.Symbol(m.ContentType))
	b = codec.EndList(b, start, 7)
	return codec.AppendData(b, m.Body)
}
