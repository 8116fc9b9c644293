// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"time"

	"overdue/alert"
)

// testType is the type of a test event, which package alert words as such. Receivers may ignore it.
const testType = "overdue.test"

// testSubject is the name of everything in a test event.
const testSubject = "overdue-doctor"

// SinkChecks are the checks of a sink of alerts that is configured under setting. reach connects to
// its host; nil: it has no host of its own. test sends a test event; nil: none is wanted. See
// [SendTest].
func SinkChecks(name, setting string, reach, test func(context.Context) error) (checks []Check) {
	check := Check{Subject: "sink " + name, Severity: Error}
	if reach != nil {
		check.Name, check.Passed, check.Run = "reachable", "Its host accepts connections.", reach
		check.Fix = "check " + setting + ", and that firewalls let this machine reach the host"
		checks = append(checks, check)
	}
	if test != nil {
		check.Name, check.Passed, check.Run = "send-test", "It accepted a test event.", test
		check.Fix = "check " + setting
		checks = append(checks, check)
	}
	return checks
}

// HeartbeatCheck is the check of the URL of heartbeats. reach connects to its host.
func HeartbeatCheck(reach func(context.Context) error) Check {
	return Check{
		Subject: "heartbeat", Name: "reachable", Passed: "Its host accepts connections.", Severity: Warning,
		Fix: "check heartbeat.url, and that firewalls let this machine reach the host", Run: reach,
	}
}

// SendTest sends a test event about a message that does not exist to a sink of events, or to one of
// notifications. The latter gets a second one right after: the matter is resolved. One of the two
// is nil. host is the namespace.
func SendTest(ctx context.Context, host string, events alert.Alerter, pager alert.Notifier) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	source := alert.SourceOf(host, "")
	e := alert.Event{
		Type: testType, Source: source + "/" + testSubject, Subject: testSubject + "-test", Time: now, ID: alert.IDOf(testSubject, now.UnixNano(), now),
		Data: alert.EventData{
			Entity: testSubject, MessageID: testSubject + "-test", EnqueuedTime: now.Add(-time.Minute), Deadline: now, DeadLetteredTime: now,
			Strategy: "native", DeadLetterReason: "TTLExpiredException",
		},
	}
	if events != nil {
		err := events.Alert(ctx, e)
		if closer, ok := events.(interface{ Close(context.Context) error }); ok {
			err = errors.Join(err, closer.Close(ctx))
		}
		return err
	}
	n := alert.Notification{
		Key: testSubject + "-" + e.ID, Source: source, Labels: map[string]string{"type": testType, "entity": testSubject},
		Count: 1, Total: 1, Since: now, Last: now, Oldest: &e, Samples: []alert.Event{e},
	}
	if err := pager.Notify(ctx, n); err != nil {
		return err
	}
	n.Count, n.Resolved, n.Oldest, n.Samples = 0, true, nil, nil
	return pager.Notify(ctx, n)
}
