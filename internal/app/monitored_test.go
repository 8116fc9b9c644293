// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"
)

// Sessions and topics are monitored as everything else is, without a word in the configuration.
func TestSessionsAndTopicsAreMonitored(t *testing.T) {
	t.Parallel()
	p := startTest(t, `
broker:
  queues: [{name: jobs, requiresSession: true, deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: 1s}]
  topics: [{name: events, subscriptions: [{name: all, deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: 1s}]}]
`)
	for _, name := range []string{"jobs", "events"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/"+name+"/messages", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("BrokerProperties", `{"SessionId": "s"}`)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: status %d", name, resp.StatusCode)
		}
	}
	for _, path := range []string{"jobs", "events/Subscriptions/all"} {
		q, ok := p.broker.Queue(path)
		if !ok {
			t.Fatalf("no queue %s", path)
		}
		eventually(t, path+" is dead-lettered with nobody receiving", func() bool { return q.Counts().DeadLetter == 1 })
	}
}
