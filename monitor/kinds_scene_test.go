// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/entities"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
)

// describe is what the monitor asks how entities were made.
func (s *scene) describe(ctx context.Context, name string, since time.Time) (entities.Info, error) {
	if s.remembers != nil {
		return s.remembers.LookupSince(ctx, name, since)
	}
	return s.Describe(name)
}

// wantDead wants these messages, in this order of their numbers, to be the dead letters at a path,
// for that reason. None may be early and none later than late by its deadline.
func (s *scene) wantDead(path, reason string, within, late time.Duration, ids ...string) {
	s.Helper()
	var got []string
	for _, m := range s.Dead(path) {
		got = append(got, m.MessageID)
		lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(within))
		if m.DeadLetterReason != reason || lag < 0 || lag > late {
			s.Errorf("%s: reason %q, dead-lettered %v after its deadline; want %s and 0 to %v", m.MessageID, m.DeadLetterReason, lag, reason, late)
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		s.Errorf("dead letters of %s (-want +got):\n%s", path, diff)
	}
}

// wantNotified wants events about just these subjects, in any order.
func (s *scene) wantNotified(ids ...string) {
	s.Helper()
	slices.Sort(ids)
	if diff := cmp.Diff(ids, s.Hook.Subjects()); diff != "" {
		s.Errorf("notified of (-want +got):\n%s", diff)
	}
}

// session puts a message into a session.
func session(id string) string { return `"SessionId":"` + id + `"` }

// accept takes a session as a consumer would.
func (s *scene) accept(entity, id string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := s.Client.AcceptSessionForQueue(s.Context(), entity, id, nil)
	if err != nil {
		s.Fatalf("accept session %q of %s: %v", id, entity, err)
	}
	s.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// defers receives a message and sets it aside.
func (s *scene) defers(queue string) (number int64) {
	s.Helper()
	r, m := s.receive(queue)
	if err := r.DeferMessage(s.Context(), m, nil); err != nil {
		s.Fatal(err)
	}
	if err := r.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
	return *m.SequenceNumber
}
