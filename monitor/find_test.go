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

// A watch over the duplicates of an earlier message has found a message before its own companion is
// due. Without that companion its own deadline is known to nobody.
func TestReferenceTakesAMessageOfAWatchOverDuplicates(t *testing.T) {
	other := &link.Message{MessageID: "same", SequenceNumber: 1, EnqueuedTime: noon, TimeToLive: time.Hour}
	own := &link.Message{MessageID: "same", SequenceNumber: 2, EnqueuedTime: noon, TimeToLive: time.Minute}
	e := &entity{}
	for _, m := range []*link.Message{other, own} {
		e.watches = append(e.watches, &watch{duplicates: isDuplicate, want: search.Want{Identity: search.IdentityOf(m)}})
	}
	w := &search.Want{}
	w.Seek(&scheduler.Reference{MessageID: "same", From: noon, Until: noon.Add(2 * time.Second), Within: time.Minute, Stated: "ttl"})
	choose := e.chooser(nil)
	for _, m := range []*link.Message{other, own} {
		search.Match([]*search.Want{w}, m, choose)
	}
	if e.useSpares([]*search.Want{w}); w.Found != own {
		t.Errorf("found %+v, want the message with the deadline of the reference", w.Found)
	}
}
