// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Two messages have one id and one time to live. A partitioned queue shows that of another session
// first.
func TestReferenceTakesTheMessageOfItsSession(t *testing.T) {
	other := &link.Message{MessageID: "same", SessionID: "other", SequenceNumber: 1, EnqueuedTime: noon.Add(time.Second), TimeToLive: time.Minute}
	own := &link.Message{MessageID: "same", SessionID: "own", SequenceNumber: 2, EnqueuedTime: noon, TimeToLive: time.Minute}
	w := &search.Want{}
	w.Seek(&scheduler.Reference{
		MessageID: "same", SessionID: "own", From: noon, Until: noon.Add(2 * time.Second), Within: time.Minute, Stated: "ttl",
	})
	choose := (&entity{}).chooser(nil)
	for _, m := range []*link.Message{other, own} {
		search.Match([]*search.Want{w}, m, choose)
	}
	if w.Found != own {
		t.Errorf("found %+v, want the message of the session of the reference", w.Found)
	}
}
