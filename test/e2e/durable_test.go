// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
)

// Everything of Overdue in one process, with the embedded broker on a directory.
func newDurable(t *testing.T, directory, webhook string) *processes {
	p := newProcesses(t, program.Build(t), webhook)
	p.settings = []string{
		"OVERDUE_NAMESPACE=",
		"OVERDUE_MONITOR_QUEUE=overdue-monitor",
		"OVERDUE_BROKER_DIRECTORY=" + directory,
		"OVERDUE_BROKER_QUEUES=[{name: orders, deadLetteringOnMessageExpiration: true}]",
	}
	return p
}

// On the real clock, as kill -9 needs a process. The bounds are for a busy machine.
func TestDeadlinesOutliveTheKillOfEverything(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	defer sink.Close()
	p := newDurable(t, filepath.Join(t.TempDir(), "data"), sink.URL)
	kill := p.start("run", p.settings...)
	const life = 3 * time.Second
	p.send("overdue", life)
	deadline := time.Now().Add(life)
	p.send("live", time.Hour)
	kill()
	if n := len(h.Subjects()); n > 0 {
		t.Fatalf("%d notifications before the deadline", n)
	}
	time.Sleep(time.Until(deadline)) // nobody runs at the deadline
	p.start("run", p.settings...)
	for end := time.Now().Add(startTimeout); len(h.Subjects()) == 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if got := h.Subjects(); len(got) != 1 || got[0] != "overdue" {
		t.Errorf("notified: %q, want overdue", got)
	}
	dead := p.peekAll(azservicebus.SubQueueDeadLetter)
	if len(dead) != 1 || dead[0].MessageID != "overdue" || *dead[0].DeadLetterReason != "TTLExpiredException" {
		t.Errorf("dead letters: %v, want overdue", dead)
	}
	if live := p.peekAll(0); len(live) != 1 || live[0].MessageID != "live" || string(live[0].Body) != "body of live" {
		t.Errorf("waiting: %v, want live as it was sent", live)
	}
}

// A sender sends to a broker until it is stopped, and remembers what was acknowledged.
type sender struct {
	url string

	mu           sync.Mutex
	acknowledged []string
}

func (s *sender) try(id string, body []byte) (status int) {
	req, err := http.NewRequest(http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q}`, id))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0 // the broker was killed
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusCreated {
		s.mu.Lock()
		s.acknowledged = append(s.acknowledged, id)
		s.mu.Unlock()
	}
	return resp.StatusCode
}

func (s *sender) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.acknowledged...)
}

const earlyMessages = 5

// early sends messages that the disk still takes.
func (s *sender) early(t *testing.T, body []byte) {
	t.Helper()
	for i := range earlyMessages {
		if status := s.try(fmt.Sprint("early-", i), body); status != http.StatusCreated {
			t.Fatalf("send = %d, want 201", status)
		}
	}
}

// refused sends until the disk takes no more. Then reads go on, and health says what is the matter.
func (s *sender) refused(p *processes, r *running, body []byte, sentence string) {
	p.Helper()
	refused := 0
	for i := 0; refused == 0 && i < 1000; i++ {
		if status := s.try(fmt.Sprint("refused-", i), body); status != http.StatusCreated {
			refused = status
		}
	}
	if refused != http.StatusForbidden && refused != http.StatusServiceUnavailable && refused != http.StatusInternalServerError {
		p.Errorf("a send that the disk does not take = %d, want an error of quota or server", refused)
	}
	if live := p.peekAll(0); len(live) < earlyMessages {
		p.Errorf("%d messages can be peeked, want those that were acknowledged", len(live))
	}
	if status, body := p.ask(r, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, sentence) {
		p.Errorf("/readyz = %d %s, want 503 with %q", status, body, sentence)
	}
	if _, body := p.ask(r, "/healthz/outbound"); !strings.Contains(body, sentence) {
		p.Errorf("/healthz/outbound: %s, want %q", body, sentence)
	}
	if _, body := p.ask(r, "/metrics"); !strings.Contains(body, "\noverdue_broker_store_trouble 1\n") {
		p.Error("the metric does not show the trouble")
	}
}

// lacks returns the first of these messages that is not in the queue.
func (p *processes) lacks(ids []string) string {
	p.Helper()
	there := map[string]bool{}
	for _, m := range p.peekAll(0) {
		there[m.MessageID] = true
	}
	for _, id := range ids {
		if !there[id] {
			return id
		}
	}
	return ""
}

func TestBackupUnderLoadCanBeRestored(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	dir := t.TempDir()
	p := newDurable(t, filepath.Join(dir, "data"), "http://127.0.0.1:9/")
	kill := p.start("broker", p.settings...)
	s := &sender{url: "http://" + p.broker + "/orders/messages"}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	for w := range 4 {
		sending.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					s.try(fmt.Sprint(w, "-", i), bytes.Repeat([]byte("x"), 1024))
				}
			}
		})
	}
	file := filepath.Join(dir, "copy.tar")
	var before []string
	for range 3 {
		for goal := len(before) + 100; len(s.list()) < goal; {
			time.Sleep(10 * time.Millisecond)
		}
		before = s.list()
		p.overdue("broker", "backup", filepath.Join(dir, "data"), file)
	}
	close(stop)
	sending.Wait()
	kill()
	restored := filepath.Join(dir, "restored")
	unpack(t, file, restored)
	p.overdue("broker", "check", restored)
	p.settings = append(p.settings, "OVERDUE_BROKER_DIRECTORY="+restored)
	p.start("broker", p.settings...)
	if id := p.lacks(before); id != "" {
		t.Errorf("%d messages were acknowledged before the backup, and the copy lacks %s", len(before), id)
	}
}

// overdue runs a command that has to succeed.
func (p *processes) overdue(args ...string) {
	p.Helper()
	if out, err := exec.CommandContext(p.Context(), p.binary, args...).CombinedOutput(); err != nil {
		p.Fatalf("overdue %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		data, err := io.ReadAll(r)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700))
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The disk is a file system in memory that is filled, and then has room again.
func TestBrokerGoesOnWhenAFullDiskHasRoom(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	volume := filepath.Join(t.TempDir(), "volume")
	mount(t, volume, "-t", "tmpfs", "-o", "size=384m", "tmpfs")
	p := newDurable(t, filepath.Join(volume, "data"), "http://127.0.0.1:9/")
	r := p.begin("broker", p.settings...)
	p.ready(r)
	s := &sender{url: "http://" + p.broker + "/orders/messages"}
	body := bytes.Repeat([]byte("x"), 240<<10)
	s.early(t, body)
	filler := filepath.Join(volume, "filler")
	fill(t, filler)
	s.refused(p, r, body, "is full: what is sent and settled is refused until there is room")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// Changes that waited for room are written first, and may fill the disk for a moment.
	status := 0
	for end := time.Now().Add(startTimeout); status != http.StatusCreated && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		status = s.try("late", body)
	}
	if status != http.StatusCreated {
		t.Errorf("send when there is room = %d, want 201", status)
	}
	p.ready(r)
	p.end(r, syscall.SIGKILL)
	fill(t, filler)
	p.endWhileItStarts(p.begin("broker", p.settings...))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.start("broker", p.settings...)
	if id := p.lacks(s.list()); id != "" {
		t.Errorf("%s was acknowledged, and is lost", id)
	}
}

// endWhileItStarts ends a process that listens and waits for room to start.
func (p *processes) endWhileItStarts(r *running) {
	p.Helper()
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", r.admin)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			p.Fatalf("%s does not listen: %v", r.role, err)
		}
	}
	stuck := time.AfterFunc(startTimeout, func() { _ = r.cmd.Process.Kill() })
	defer stuck.Stop()
	p.end(r, syscall.SIGTERM)
}

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 4 << 10} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// ask asks the admin port.
func (p *processes) ask(r *running, path string) (status int, body string) {
	p.Helper()
	resp, err := http.Get("http://" + r.admin + path)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
