// SPDX-License-Identifier: Apache-2.0

package transport

import "overdue/internal/amqp"

// Windows bound the transfers of a session in both directions (part 2 section 2.5.6).
type Windows struct {
	NextIncoming uint32 // transfer-id of the peer's next frame
	Incoming     uint32 // frames that the peer may still send
	NextOutgoing uint32 // transfer-id of our next frame
	Outgoing     uint32 // frames that the peer takes
}

// Begin takes the peer's begin.
func (w *Windows) Begin(b *amqp.Begin) {
	w.NextIncoming, w.Outgoing = b.NextOutgoingID, b.IncomingWindow
}

// Flow takes the peer's view. A peer that has not seen our begin counts from first, the transfer-id
// of our first frame.
func (w *Windows) Flow(f *amqp.Flow, first uint32) {
	if f.HasNextIncomingID {
		first = f.NextIncomingID
	}
	inFlight := w.NextOutgoing - first
	if int32(inFlight) < 0 {
		inFlight = 0 // it counts transfers that were never sent, so only its window is credible
	}
	w.Outgoing = f.IncomingWindow - min(f.IncomingWindow, inFlight)
}

// Receive counts a transfer from the peer, and reports whether the window allows it.
func (w *Windows) Receive() bool {
	if w.Incoming == 0 {
		return false
	}
	w.Incoming--
	w.NextIncoming++
	return true
}

// Send counts a transfer to the peer.
func (w *Windows) Send() {
	w.NextOutgoing++
	w.Outgoing--
}

// Fill puts our view into a flow, except for the outgoing window, which no peer heeds.
func (w *Windows) Fill(f *amqp.Flow) {
	f.NextIncomingID, f.IncomingWindow, f.NextOutgoingID = w.NextIncoming, w.Incoming, w.NextOutgoing
}
