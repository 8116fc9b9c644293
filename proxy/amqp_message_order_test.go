// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// The Python SDKs put delivery annotations last, and nothing may follow them: what is added comes
// before.
func TestWhatIsAddedComesBeforeASectionOutOfTurn(t *testing.T) {
	section := func(code uint64) []byte { return []byte{0x00, 0x53, byte(code), 0xc1, 0x01, 0x00} } // an empty map
	sent := slices.Concat(section(amqp.CodeMessageAnnotations), section(amqp.CodeDeliveryAnnotations))
	got := complete(t, sent, time.Second)
	checkCompleted(t, sent, got, time.Second)
	if m, err := amqp.ParseMessage(got); err != nil || m.Properties == nil || m.Header == nil {
		t.Errorf("completed as %x, which is read as %+v, %v, want a header and properties", got, m, err)
	}
}
