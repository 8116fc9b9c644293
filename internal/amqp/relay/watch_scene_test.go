// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sync"

	"overdue/internal/amqp"
)

// A fakeWatcher plays the proxy for one link.
type fakeWatcher struct {
	deliver func(*Delivery) (DeliveryHandler, *amqp.Error)

	mu       sync.Mutex
	detached int
}

func (w *fakeWatcher) Deliver(d *Delivery) (DeliveryHandler, *amqp.Error) { return w.deliver(d) }

func (w *fakeWatcher) Detached() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detached++
}

// A fakeHandler holds one delivery until the test lets it go.
type fakeHandler struct {
	payload string
	wait    bool
	ready   func(*amqp.Error)

	outcome chan amqp.DeliveryState
	answer  chan func(*amqp.Error)
}

func newFakeHandler(d *Delivery, wait bool) *fakeHandler {
	return &fakeHandler{payload: string(d.Payload), wait: wait, outcome: make(chan amqp.DeliveryState, 1), answer: make(chan func(*amqp.Error), 1)}
}

func (h *fakeHandler) Before(r Resumer) bool {
	h.ready = r.Resume
	return h.wait
}

func (h *fakeHandler) Settled(outcome amqp.DeliveryState, answerer Answerer) {
	h.outcome <- outcome
	h.answer <- answerer.Answer
}

// watching has the relay watch the links to orders.
func watching(w Watcher) func(*Config) {
	return func(c *Config) {
		c.Watch = func(l Link) Watcher {
			if l.Class.Entity() == "orders" && !l.Receiver {
				return w
			}
			return nil
		}
	}
}
