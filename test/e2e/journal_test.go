// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// openJournal runs the proxy's journal until the scene ends; nil when it has none.
func (s *scene) openJournal(sc *scheduler.Scheduler) *journal.Journal {
	s.Helper()
	if s.journal == "" {
		return nil
	}
	j, err := journal.Open(journal.Config{Scheduler: sc, Directory: s.journal, Namespace: "overdue.test"})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Run = %v, want nil after a stop", err)
		}
		if err := j.Close(context.Background()); err != nil {
			s.Errorf("closing the journal: %v", err)
		}
	})
	return j
}

// Deadlines that pass while the monitor queue takes nothing are noticed seconds after it is
// back, those that come later in time, and each is notified once.
func TestDeadlinesThatPassWhileTheMonitorQueueIsDown(t *testing.T) {
	directory := t.TempDir()
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "before", ttl(2*time.Second))
		heal := s.Namespace.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
		const outage = 5 * time.Minute
		n := racetest.Sized(600, 200)
		for i := range n { // every second one is due after the outage
			s.send(workQueue, fmt.Sprint("m-", i), ttl(10*time.Second+time.Duration(i%2)*outage+time.Duration(i)*100*time.Millisecond))
		}
		time.Sleep(outage)
		heal()
		back := time.Now()
		for len(s.Hook.Subjects()) < 1+n/2 && time.Since(back) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		s.Logf("%d deadlines that passed in the outage were notified %v after it", n/2, time.Since(back))
		if took := time.Since(back); took > 10*time.Second {
			s.Errorf("deadlines that passed in the outage were notified %v after it, want 10s at most", took)
		}
		time.Sleep(2 * time.Minute)
		if notified := s.Hook.Subjects(); len(notified) != n+1 || len(slices.Compact(notified)) != n+1 {
			s.Errorf("%d events were notified, want one for each of %d messages", len(notified), n+1)
		}
		late := 0
		for _, lag := range s.Lags(workQueue) {
			if lag > 250*time.Millisecond {
				late++
			}
		}
		if late > n/2 {
			s.Errorf("%d messages were dead-lettered late, want those %d alone whose deadlines passed in the outage", late, n/2)
		}
	}, func(s *scene, _ *broker.Config) { s.journal = directory })
}

// The monitor queue takes nothing, and the proxy, which keeps companions in its journal, is
// killed with SIGKILL in mid-send again and again. When the queue is back, every message that
// was acknowledged is expired and notified. The last proxy refuses what it cannot write, and
// empties the journal all the same.
func TestProxyIsKilledWhileItKeepsAJournal(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel() // it waits, mostly
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	defer sink.Close()
	p := newProcesses(t, program.Build(t), sink.URL)
	directory := t.TempDir()
	passing := []string{"OVERDUE_ON_MONITOR_DOWN=pass", "OVERDUE_JOURNAL_DIRECTORY=" + directory}
	p.start("broker")
	p.start("monitor")
	kill := p.start("proxy", passing...)
	p.send("first", time.Second) // opens the links
	fault := p.control("POST", "faults", `{"entity": "companions", "operation": "send", "error": "full"}`)

	// Deadlines that pass while the monitor queue is down, and some that do not.
	var mu sync.Mutex
	acknowledged := []string{"first"}
	const kills = 5
	for round := range kills {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for sender := range 4 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("m-%d-%d-%d", round, sender, i)
					if p.trySend(ctx, id, time.Duration(1+(i+sender)%8)*time.Second) {
						mu.Lock()
						acknowledged = append(acknowledged, id)
						mu.Unlock()
					}
				}
			})
		}
		for enough := false; !enough; time.Sleep(time.Duration(200+rng.IntN(300)) * time.Millisecond) {
			mu.Lock()
			enough = len(acknowledged) > 10*(round+1)
			mu.Unlock()
		}
		kill()
		cancel()
		wg.Wait()
		if round < kills-1 {
			kill = p.start("proxy", passing...)
		}
	}
	p.start("proxy", "OVERDUE_ON_MONITOR_DOWN=refuse", "OVERDUE_JOURNAL_DIRECTORY="+directory)
	if p.trySend(t.Context(), "refused", time.Second) {
		t.Error("a send was acknowledged with the monitor queue down and onMonitorDown: refuse")
	}
	p.control("DELETE", "faults/"+fault, "")

	notified := func() map[string]bool {
		all := map[string]bool{}
		for _, s := range h.Subjects() {
			all[s] = true
		}
		return all
	}
	missing := func() []string {
		seen := notified()
		return slices.DeleteFunc(slices.Clone(acknowledged), func(id string) bool { return seen[id] })
	}
	for end := time.Now().Add(2 * time.Minute); len(missing()) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if left := missing(); len(left) > 0 {
		t.Errorf("%d of %d acknowledged messages were not notified, such as %s", len(left), len(acknowledged), left[0])
	}
	for _, e := range h.Events() {
		if e.Data.DeadLetteredTime.Before(e.Data.Deadline) {
			t.Errorf("%s was dead-lettered %v early", e.Subject, e.Data.Deadline.Sub(e.Data.DeadLetteredTime))
		}
	}
}

// trySend sends one message and reports whether it was acknowledged.
func (p *processes) trySend(ctx context.Context, id string, life time.Duration) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.endpoint+"/orders/messages", strings.NewReader("body of "+id))
	if err != nil {
		p.Error(err)
		return false
	}
	req.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q,%s}`, id, ttl(life)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false // the proxy is being killed
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusCreated
}

// control asks the broker for something behind the protocol and returns the id in the answer, if
// there is one.
func (p *processes) control(method, path, body string) (id string) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), method, "http://"+p.broker+"/_overdue/"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		p.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		p.Fatalf("%s %s = %s %s, %v", method, path, resp.Status, answer, err)
	}
	if _, rest, ok := strings.Cut(string(answer), `"id":`); ok {
		id = strings.TrimSpace(strings.TrimRight(strings.SplitN(rest, ",", 2)[0], "}\n "))
	}
	return id
}
