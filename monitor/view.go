// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// pageSize is how many messages one peek may bring: the most that Service Bus gives
// (servicebus-facts: message-browsing).
const pageSize = 250

// peekTime bounds one peek, the opening of its link included. Every operation of a pass is bounded,
// so that a broker that stalls cannot keep it for ever; the pass is not, or it would begin anew
// again and again on a line that is only slow.
const peekTime = 30 * time.Second

// view peeks at one queue, or at its dead-letter queue. It is for one goroutine.
type view struct {
	client   *azservicebus.Client
	queue    string
	sub      azservicebus.SubQueue // 0: the queue itself
	metrics  *metrics
	receiver *azservicebus.Receiver // nil until the next peek
	marks    landmarks
	memory   *memory
}

// peek brings up to n messages from sequence number from on. An empty page means that
// there is none; a short one does not, since its size in bytes is bounded too.
func (v *view) peek(ctx context.Context, from int64, n int) ([]*azservicebus.ReceivedMessage, error) {
	if v.receiver == nil {
		r, err := v.client.NewReceiverForQueue(v.queue, &azservicebus.ReceiverOptions{SubQueue: v.sub})
		if err != nil {
			return nil, fmt.Errorf("monitor: open %s: %w", v, err)
		}
		v.receiver = r
	}
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	page, err := v.receiver.PeekMessages(ctx, n, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(from)})
	v.metrics.operation("peek", 1)
	if err != nil {
		return nil, fmt.Errorf("monitor: peek at %s: %w", v, err)
	}
	for _, m := range page {
		if sequenceNumber(m) < from {
			return nil, fmt.Errorf("monitor: peek at %s from %d brought number %d", v, from, sequenceNumber(m))
		}
		v.memory.add(m.MessageID, sequenceNumber(m))
	}
	if len(page) > 0 {
		v.marks.add(mark{sequenceNumber(page[0]), enqueuedTime(page[0])})
		last := page[len(page)-1]
		v.marks.add(mark{sequenceNumber(last), enqueuedTime(last)})
	}
	return page, nil
}

// close gives up the link: an open one would count as a listener of the queue.
func (v *view) close(ctx context.Context) {
	if v.receiver == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = v.receiver.Close(ctx) // nothing is locked through it, and the next peek opens another
	v.receiver = nil
}

func (v *view) String() string {
	if v.sub == azservicebus.SubQueueDeadLetter {
		return v.queue + "/$DeadLetterQueue"
	}
	return v.queue
}
