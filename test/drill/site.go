// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"overdue/internal/httpclient"
)

// client waits longer than a proxy does before it gives up a send.
var client = httpclient.New(nil, 40*time.Second)

// readyTimeout bounds the start of a program.
const readyTimeout = time.Minute

// A site is one installation of Overdue, with an app and a sink.
type site struct {
	h        *house
	name     string
	dir      string
	programs programs
	app      *app
	hook     *hook
	redis    string // host:port; "" = none

	brokerURL, proxyAdmin string
}

func newSite(ctx context.Context, h *house, d drill) (*site, error) {
	s := &site{h: h, name: d.name, dir: filepath.Join(h.dir, d.name)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	var ports [6]string
	for i := range ports {
		var err error
		if ports[i], err = address(); err != nil {
			return nil, err
		}
	}
	broker, brokerAdmin, rest, proxyAdmin, monitorAdmin, prometheus := ports[0], ports[1], ports[2], ports[3], ports[4], ports[5]
	s.brokerURL, s.proxyAdmin = "http://"+broker, "http://"+proxyAdmin
	var err error
	if s.hook, err = newHook(); err != nil {
		return nil, err
	}
	if d.prepare != nil {
		if err := d.prepare(s); err != nil {
			return s, err
		}
	}
	namespace := fmt.Sprintf("namespace: \"Endpoint=sb://%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true\"\n", broker)
	more := strings.NewReplacer("DIR", s.dir, "REDIS", s.redis).Replace(d.settings) + "monitor: {entities: [{queue: orders}]}\ncanary: {queue: overdue-canary, interval: 1m}\n"
	for _, p := range []struct{ role, admin, text string }{
		{"broker", brokerAdmin, fmt.Sprintf("listen: {admin: %q}\nbroker: {listen: %q, queues: [{name: orders, deadLetteringOnMessageExpiration: true}, {name: overdue-canary, deadLetteringOnMessageExpiration: true}]}\n", brokerAdmin, broker)},
		{"proxy", proxyAdmin, fmt.Sprintf("%slisten: {amqp: 127.0.0.1:0, http: %q, admin: %q}\n%s", namespace, rest, proxyAdmin, strings.ReplaceAll(more, "ROLE", "proxy"))},
		{"monitor", monitorAdmin, fmt.Sprintf("%slisten: {admin: %q}\nalerts: [{webhook: {url: \"http://%s/\"}}]\n%s", namespace, monitorAdmin, s.hook.addr, strings.ReplaceAll(more, "ROLE", "monitor"))},
	} {
		if err := os.WriteFile(filepath.Join(s.dir, p.role+".yaml"), []byte(p.text), 0o600); err != nil {
			return s, err
		}
		if err := s.startRole(p.role); err != nil {
			return s, err
		}
		if err := ready(ctx, "http://"+p.admin+"/readyz"); err != nil {
			return s, fmt.Errorf("%s: %w", p.role, err)
		}
		if p.role == "broker" && d.settled != nil {
			if err := d.settled(s); err != nil {
				return s, err
			}
		}
	}
	file := filepath.Join(s.dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
global: {scrape_interval: 15s, evaluation_interval: 15s, external_labels: {site: %q}}
rule_files: [%q]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
scrape_configs: [{job_name: overdue, static_configs: [{targets: [%q, %q]}]}]
`, s.name, h.rules, h.alertmanager, proxyAdmin, monitorAdmin), 0o600); err != nil {
		return s, err
	}
	if err := s.programs.start(filepath.Join(s.dir, "prometheus.log"), "prometheus", "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(s.dir, "prometheus"), "--web.listen-address="+prometheus); err != nil {
		return s, err
	}
	s.app = startApp(s.hook, "http://"+rest+"/orders/messages")
	return s, nil
}

func (s *site) log(role string) string { return filepath.Join(s.dir, role+".log") }

func (s *site) startRole(role string) error {
	return s.programs.start(s.log(role), s.h.binary, role, "--config", filepath.Join(s.dir, role+".yaml"))
}

func (s *site) stop() {
	if s.app != nil {
		s.app.end()
	}
	s.programs.stop()
	_ = syscall.Unmount(filepath.Join(s.dir, "disk"), 0) // mostly there is none
	if s.hook != nil {
		s.hook.down()
	}
}

// control asks the broker for something behind the protocol.
func (s *site) control(method, path string, body any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(body); err != nil {
		return err
	}
	r, err := http.NewRequest(method, s.brokerURL+"/_overdue/"+path, &b)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return nil
}

// throttle makes the namespace refuse operations until heal.
func (s *site) throttle(operations ...string) error {
	for _, o := range operations {
		if err := s.control(http.MethodPost, "faults", map[string]any{"operation": o, "error": "server-busy", "times": 1_000_000}); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) heal() error { return s.control(http.MethodDelete, "faults", nil) }

// outbound is what the proxy says of its surroundings.
func (s *site) outbound() string {
	resp, err := client.Get(s.proxyAdmin + "/healthz/outbound?verbose")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func ready(ctx context.Context, url string) error {
	var last string
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); {
		resp, err := client.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = resp.Status
		} else {
			last = err.Error()
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("not ready within %v: %s", readyTimeout, last)
}

// A hook is a sink that takes events, and can be away.
type hook struct {
	addr string

	mu     sync.Mutex
	server *http.Server // nil: it is away
	events map[string]int
}

func newHook() (*hook, error) {
	k := &hook{addr: "127.0.0.1:0", events: map[string]int{}}
	return k, k.up()
}

func (k *hook) up() error {
	ln, err := net.Listen("tcp", k.addr)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addr = ln.Addr().String() // the same again, once it was away
	k.server = &http.Server{Handler: k, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(ln) }(k.server) // until it is closed
	return nil
}

func (k *hook) down() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server != nil {
		_ = k.server.Close() // connections and all
		k.server = nil
	}
}

func (k *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ Subject string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events[event.Subject]++
}

// An app sends a message every other second. Nobody receives them.
type app struct {
	hook  *hook
	stop  chan struct{}
	over  chan struct{}
	once  sync.Once
	began time.Time

	mu       sync.Mutex
	accepted []string
	failed   int
}

func startApp(k *hook, url string) *app {
	a := &app{hook: k, stop: make(chan struct{}), over: make(chan struct{}), began: time.Now()}
	go func() {
		defer close(a.over)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-a.stop:
				return
			}
			a.send(url, fmt.Sprint("order-", n))
		}
	}()
	return a
}

func (a *app) send(url, id string) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("order"))
	ok := err == nil
	if ok {
		r.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q,"TimeToLive":3}`, id))
		resp, err := client.Do(r)
		if ok = err == nil && resp.StatusCode == http.StatusCreated; err == nil {
			_ = resp.Body.Close()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok {
		a.accepted = append(a.accepted, id)
	} else {
		a.failed++
	}
}

// end ends the app.
func (a *app) end() {
	a.once.Do(func() { close(a.stop) })
	<-a.over
}

func (a *app) sent() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.accepted)
}

func (a *app) refused() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// missing counts the accepted messages whose missed deadlines the sink knows nothing of.
func (a *app) missing() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hook.mu.Lock()
	defer a.hook.mu.Unlock()
	for _, id := range a.accepted {
		if a.hook.events[id] == 0 {
			n++
		}
	}
	return n
}
