// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/chromedp/chromedp"
	"go.uber.org/zap"

	"overdue/internal/app"
	"overdue/internal/config"
)

var update = flag.Bool("update", false, "write the pictures of the documentation")

const token = "0123456789abcdef"

// A scene is a process with an embedded broker, as `overdue run` starts it.
type scene struct {
	*testing.T
	proc   *app.Process
	client *azservicebus.Client // through the AMQP endpoint
	base   string               // of the admin port, or of the broker's own
	root   string               // of the pages there
}

const settings = `
listen: {amqp: "127.0.0.1:0", http: "127.0.0.1:0", admin: "127.0.0.1:0"}
broker:
  listen: 127.0.0.1:0
  queues:
  - {name: orders, deadLetteringOnMessageExpiration: true}
  - {name: payments, deadLetteringOnMessageExpiration: true}
  - {name: invoices, deadLetteringOnMessageExpiration: true}
  topics: [{name: events, subscriptions: [{name: audit, deadLetteringOnMessageExpiration: true}]}]
monitor: {entities: [{queue: orders}, {queue: payments}, {queue: invoices}, {topic: events}]}
dashboard: {token: "` + token + `"}
`

func start(t *testing.T) *scene {
	t.Helper()
	s := startRole(t, config.RoleRun, settings)
	var err error
	s.client, err = azservicebus.NewClientFromConnectionString(config.ConnectionString(s.proc.AMQPAddr(), config.AnyKeyName, config.AnyKey), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close(context.Background()) }) // the process ends next
	return s
}

func startRole(t *testing.T, role config.Role, settings string) *scene {
	t.Helper()
	prepare(t)                              // in the cache of the user
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // where the journals of resubmissions are
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	proc, err := app.Start(t.Context(), role, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, proc: proc, base: "http://" + proc.AdminAddress(), root: "/dashboard/"}
	t.Cleanup(func() {
		if err := proc.Stop(); err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(stepTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := proc.UntilReady(t.Context()) // it waits for the namespace, but not for the monitor
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return s
}

// send sends n messages that live for ttl. change may change each.
func (s *scene) send(to, prefix string, n int, ttl time.Duration, change func(*azservicebus.Message)) {
	s.Helper()
	sender, err := s.client.NewSender(to, nil)
	if err != nil {
		s.Fatal(err)
	}
	for i := range n {
		id := fmt.Sprintf("%s-%04d", prefix, i+1)
		m := &azservicebus.Message{
			MessageID: &id, TimeToLive: &ttl, Body: fmt.Appendf(nil, `{"order": %d, "customer": "c-%03d", "total": 42.50}`, 1000+i, i*37%999),
			ApplicationProperties: map[string]any{"tenant": "blue", "attempt": int64(1)},
		}
		if change != nil {
			change(m)
		}
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
	if err := sender.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// receive takes n messages of a queue.
func (s *scene) receive(from string, n int) {
	s.Helper()
	r, err := s.client.NewReceiverForQueue(from, nil)
	if err != nil {
		s.Fatal(err)
	}
	for taken := 0; taken < n; {
		ms, err := r.ReceiveMessages(s.Context(), n-taken, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range ms {
			if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		taken += len(ms)
	}
	if err := r.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// dead waits until a queue has n dead letters.
func (s *scene) dead(queue string, n int) {
	s.Helper()
	q, ok := s.proc.Embedded().Queue(queue)
	for end := time.Now().Add(stepTimeout); ok && q.Counts().DeadLetter < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s has %d dead letters, want %d", queue, q.Counts().DeadLetter, n)
		}
	}
}

// post asks the admin port for something that changes the process.
func (s *scene) post(path string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Overdue-Admin", "1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	_ = resp.Body.Close() // of no interest
	if resp.StatusCode != http.StatusOK {
		s.Fatalf("POST %s = %s", path, resp.Status)
	}
}

// maxPicture bounds a picture in the documentation.
const maxPicture = 170 << 10

// picture takes a picture of the page, and writes it to the documentation if that is wanted.
func (t *tab) picture(name string) {
	t.Helper()
	b := get(t, chromedp.CaptureScreenshot())
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer // the browser compresses little
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, img); err != nil {
		t.Fatal(err)
	}
	b = small.Bytes()
	if len(b) > maxPicture || img.Bounds().Dx() < 300 {
		t.Errorf("%s has %d bytes and is %d wide; want %d bytes at most", name, len(b), img.Bounds().Dx(), maxPicture)
	}
	path := filepath.Join("..", "..", "docs", "images", name)
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("%v; make it with go test ./test/web -update", err)
	}
	shown := false
	for _, page := range []string{"operate/monitor.md", "operate/dlq.md", "broker/page.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		shown = shown || strings.Contains(string(text), "../images/"+name)
	}
	if !shown {
		t.Errorf("no page of the documentation shows %s", name)
	}
}
