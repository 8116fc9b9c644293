// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// short is a demo of half a second. Its bounds are for machines that are busy.
var short = timing{
	firstTTL: 100 * time.Millisecond, lastTTL: 400 * time.Millisecond, grace: time.Minute,
	sending: time.Minute, receive: time.Minute, pause: 20 * time.Millisecond, tick: 5 * time.Millisecond,
}

// recordedScreen keeps what a demo shows. changed sees each frame.
type recordedScreen struct {
	text    strings.Builder
	last    []frame // of each phase
	changed func(frame)
}

func (s *recordedScreen) say(text string) { s.text.WriteString(text + "\n") }

func (s *recordedScreen) show(f frame) {
	if f.last {
		s.last = append(s.last, f)
	}
	if s.changed != nil {
		s.changed(f)
	}
}

func TestTheWatchedQueueExpiresByItselfAndTheOtherAtAReceive(t *testing.T) {
	const n = 20
	screen, log := &recordedScreen{}, &strings.Builder{}
	r, err := runTimed(t.Context(), n, screen, log, short, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(); err != nil {
		t.Errorf("verdict = %v, want nil", err)
	}
	if r.Lazy.Sent != n || r.Lazy.DeadLetteredBeforeReceive != 0 || r.Lazy.DeadLetteredAfterReceive != n {
		t.Errorf("lazy = %+v, want all of %d messages dead-lettered by the receive, and none before", r.Lazy, n)
	}
	if len(screen.last) != 3 {
		t.Fatalf("%d phases were shown, want sending, waiting and receiving", len(screen.last))
	}
	if f := screen.last[0]; f.eager.waiting+f.eager.dead != n || f.lazy.waiting != n {
		t.Errorf("after the sends: %+v, want %d messages on each queue", f, n)
	}
	if f := screen.last[1]; f.eager != (queueCounts{0, n}) || f.lazy != (queueCounts{n, 0}) {
		t.Errorf("after the deadlines: %+v, want the watched queue empty and the other full", f)
	}
	if f := screen.last[2]; f.lazy != (queueCounts{0, n}) {
		t.Errorf("after the receive: %+v, want the other queue empty as well", f)
	}
	if !strings.Contains(screen.text.String(), "20 messages to each, times to live between 100ms and 400ms.\n") {
		t.Errorf("the screen does not say what is sent:\n%s", &screen.text)
	}
	if log.Len() > 0 {
		t.Errorf("the log has errors:\n%s", log)
	}
}

func TestAnInterruptedDemoEndsInEveryPhase(t *testing.T) {
	long := short
	long.lastTTL = time.Hour // without the interrupt it would not end
	for phase, here := range map[string]func(frame) bool{
		"sending": func(frame) bool { return true },
		"waiting": func(f frame) bool { return f.lazy.waiting == 3 && f.eager.dead == 1 },
	} {
		t.Run(phase, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			screen := &recordedScreen{changed: func(f frame) {
				if here(f) {
					interrupt()
				}
			}}
			r, err := runTimed(ctx, 3, screen, io.Discard, long, nil)
			if err == nil || !strings.Contains(err.Error(), "interrupted before the end") {
				t.Errorf("result, error = %+v, %v, want an interruption", r, err)
			}
		})
	}
}

// started is a demo whose Overdue runs, and has not begun.
func started(t *testing.T) *demo {
	t.Helper()
	proc, err := startDemo(t.Context(), io.Discard, "0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(proc.OwnConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close(context.Background())
		if err := proc.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &demo{proc: proc, client: client, http: &http.Client{}, n: 1, screen: NoScreen{}, timing: short}
}

func TestARefusedSendEndsTheDemoWithItsAnswer(t *testing.T) {
	d := started(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the monitor queue is full", http.StatusServiceUnavailable)
	}))
	defer refusing.Close()
	d.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		r.URL.Host = refusing.Listener.Addr().String()
		return http.DefaultTransport.RoundTrip(r)
	})
	_, err := d.run(t.Context())
	if want := "send to eager: 503 Service Unavailable: the monitor queue is full"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want one with %q", err, want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAMessageThatTheOtherQueueDeliversIsAnError(t *testing.T) {
	d := started(t)
	sender, err := d.client.NewSender(demoLazy, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close(context.Background())
	if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("it has no time to live")}, nil); err != nil {
		t.Fatal(err)
	}
	d.timing.receive = time.Minute
	if err := d.receiveOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "an expired message was delivered") {
		t.Errorf("error = %v, want one of a message that was delivered", err)
	}
}

func TestAReceiveThatGetsNothingInItsTimeIsNoError(t *testing.T) {
	d := started(t)
	d.timing.receive, d.timing.pause = 30*time.Millisecond, time.Hour
	if err := d.receiveOnce(t.Context()); err != nil {
		t.Errorf("error = %v, want nil", err)
	}
}

func TestScreensThatAreNoTerminalWriteLines(t *testing.T) {
	var b strings.Builder
	if _, ok := NewScreen(&b, func(string) string { return "" }).(*lineScreen); !ok {
		t.Error("a screen that is no terminal does not write lines")
	}
}

func TestALongTextIsBrokenAtSpacesAndColorsAreOptional(t *testing.T) {
	var b strings.Builder
	s := &liveScreen{w: &b, color: true}
	s.say(strings.Repeat("word ", 30) + strings.Repeat("x", 2*screenWidth))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 3 || len(lines[0]) > screenWidth || len(lines[1]) > screenWidth || lines[2] != strings.Repeat("x", 2*screenWidth) {
		t.Errorf("lines = %q, want two of words, and the long word whole", lines)
	}
	b.Reset()
	s.show(frame{total: 2, eager: queueCounts{1, 1}})
	if !strings.Contains(b.String(), "\x1b[36m"+strings.Repeat("█", barWidth/2)+"\x1b[0m") {
		t.Errorf("no colored bar in %q", b.String())
	}
}

// The dashboard shows both queues, and stays until somebody ends the demo.
func TestDemoOnTheDashboard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pages []string
	var url string
	get := func() string {
		resp, err := http.Get(url)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	screen := &watchedScreen{recordedScreen: &recordedScreen{}, said: func(text string) {
		if strings.HasPrefix(text, "Now somebody receives") {
			pages = append(pages, get())
		}
	}}
	done := make(chan error, 1)
	shown := make(chan struct{})
	go func() {
		r, err := runTimed(ctx, 20, screen, io.Discard, short, func(at, token string) {
			url = at
			if len(token) < 16 {
				t.Errorf("the token is %q, want one that nobody guesses", token)
			}
			close(shown)
		})
		if err == nil {
			err = r.Verdict()
		}
		done <- err
	}()
	<-shown
	for !strings.Contains(get(), "That is the whole demo.") {
		select {
		case err := <-done:
			t.Fatalf("the demo ended by itself: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"Watched by Overdue", "Left to itself", `max="20" value="20">20 of 20</meter>`, "Dead-lettered within"} {
		if len(pages) != 1 || !strings.Contains(pages[0], want) {
			t.Errorf("the dashboard has no %q: %q", want, pages)
		}
	}
}

// A watchedScreen passes on what is said.
type watchedScreen struct {
	*recordedScreen
	said func(string)
}

func (s *watchedScreen) say(text string) { s.recordedScreen.say(text); s.said(text) }
