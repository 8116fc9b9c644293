// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/alert"
)

// eventSink is a sink of events that has to be closed.
type eventSink struct {
	events []alert.Event
	closed bool
	err    error
}

func (s *eventSink) Name() string { return "events" }

func (s *eventSink) Alert(_ context.Context, e alert.Event) error {
	s.events = append(s.events, e)
	return s.err
}

func (s *eventSink) Close(context.Context) error {
	s.closed = true
	return nil
}

// pagerSink is a sink of notifications.
type pagerSink struct {
	notifications []alert.Notification
	err           error
}

func (s *pagerSink) Name() string { return "pager" }

func (s *pagerSink) Notify(_ context.Context, n alert.Notification) error {
	s.notifications = append(s.notifications, n)
	return s.err
}

var errSink = errors.New("status 500")

func TestATestEventIsNotTakenForARealOne(t *testing.T) {
	s := &eventSink{}
	if err := SendTest(t.Context(), "Contoso.servicebus.windows.net:5671", s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.events) != 1 || !s.closed {
		t.Fatalf("%d events, closed %v; want one, and a sink that is closed", len(s.events), s.closed)
	}
	e := s.events[0]
	if e.Type != "overdue.test" || e.Source != "sb://contoso.servicebus.windows.net/overdue-doctor" || e.Subject != "overdue-doctor-test" || e.Data.MessageID != e.Subject {
		t.Errorf("event %+v", e)
	}
	s.err = errSink
	if err := SendTest(t.Context(), host, s, nil); !errors.Is(err, errSink) {
		t.Errorf("SendTest = %v, want the error of the sink", err)
	}
}

func TestATestNotificationIsResolvedAtOnce(t *testing.T) {
	s := &pagerSink{}
	if err := SendTest(t.Context(), host, nil, s); err != nil {
		t.Fatal(err)
	}
	if len(s.notifications) != 2 {
		t.Fatalf("%d notifications, want two", len(s.notifications))
	}
	first, second := s.notifications[0], s.notifications[1]
	if first.Resolved || first.Count != 1 || len(first.Samples) != 1 || !second.Resolved || second.Count != 0 || first.Key != second.Key {
		t.Errorf("notifications %+v, then %+v; want one of an event, and its end", first, second)
	}
	if got, want := first.Title()+"; "+first.Advice(), "1 test event on overdue-doctor; Nothing. overdue doctor sent this to test the sink"; got != want {
		t.Errorf("the test says %q, want %q", got, want)
	}
	s = &pagerSink{err: errSink}
	if err := SendTest(t.Context(), host, nil, s); !errors.Is(err, errSink) || len(s.notifications) != 1 {
		t.Errorf("SendTest = %v after %d notifications, want the error of the first", err, len(s.notifications))
	}
}

func TestASinkIsCheckedAsFarAsItCanBe(t *testing.T) {
	pass := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errSink }
	for name, c := range map[string]struct {
		reach, test func(context.Context) error
		want        []Finding
	}{
		"a queue": {},
		"a host":  {reach: pass, want: []Finding{{Subject: "sink pager", Check: "reachable", Summary: "Its host accepts connections."}}},
		"a host, with a test": {reach: pass, test: fail, want: []Finding{
			{Subject: "sink pager", Check: "reachable", Summary: "Its host accepts connections."},
			{Subject: "sink pager", Check: "send-test", Severity: Error, Summary: "Status 500.", Fix: "check alerts[1]"},
		}},
		"a host that is down": {reach: fail, want: []Finding{
			{Subject: "sink pager", Check: "reachable", Severity: Error, Summary: "Status 500.", Fix: "check alerts[1], and that firewalls let this machine reach the host"},
		}},
		"a test": {test: pass, want: []Finding{{Subject: "sink pager", Check: "send-test", Summary: "It accepted a test event."}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ExamineOthers(t.Context(), Config{Others: SinkChecks("pager", "alerts[1]", c.reach, c.test)}).Findings
			if diff := cmp.Diff(append([]Finding{}, c.want...), got, cmp.AllowUnexported(Finding{})); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHeartbeatThatIsDownIsAWarning(t *testing.T) {
	r := ExamineOthers(t.Context(), Config{Others: []Check{HeartbeatCheck(func(context.Context) error { return errSink })}})
	if diff := cmp.Diff([]string{"heartbeat: warning reachable"}, list(r)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
