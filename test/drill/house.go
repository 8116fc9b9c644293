// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"overdue/internal/testing/freeport"
)

// A house has what the sites share: the built program, and Alertmanager with its pages.
type house struct {
	dir, binary, rules string
	alertmanager       string // host:port
	programs           programs

	mu    sync.Mutex
	pages []page
}

func newHouse(ctx context.Context, dir string) (*house, error) {
	h := &house{dir: dir, binary: filepath.Join(dir, "overdue")}
	build := exec.CommandContext(ctx, "go", "build", "-o", h.binary, "./cmd/overdue")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build in the root of the module: %w\n%s", err, out)
	}
	var err error
	if h.rules, err = filepath.Abs("deploy/prometheus/overdue.rules.yml"); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	pager := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages, err := decodePages(json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pages = append(h.pages, pages...)
	})}
	go func() { _ = pager.Serve(ln) }() // it ends with the program
	if h.alertmanager, err = address(); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
route: {receiver: pager, group_by: [site, alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 12h}
receivers: [{name: pager, webhook_configs: [{url: "http://%s/", send_resolved: true}]}]
`, ln.Addr()), 0o600); err != nil {
		return nil, err
	}
	return h, h.programs.start(filepath.Join(dir, "alertmanager.log"), "prometheus-alertmanager", "--config.file="+file,
		"--storage.path="+filepath.Join(dir, "alertmanager"), "--web.listen-address="+h.alertmanager, "--cluster.listen-address=")
}

func (h *house) stop() { h.programs.stop() }

func (h *house) pagesOf(site string) (all []page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pages {
		if p.Site == site {
			all = append(all, p)
		}
	}
	return all
}

func address() (string, error) {
	port, err := freeport.Find()
	return "127.0.0.1:" + port, err
}

// programs are those that were started, by the name of the log of each.
type programs struct {
	mu  sync.Mutex
	all map[string]*exec.Cmd
}

// start starts a program, which appends to a log.
func (p *programs) start(log, name string, args ...string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // the program has its own
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; `make sdks` installs what is missing", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*exec.Cmd{}
	}
	p.all[log] = cmd
	return nil
}

// kill ends a program as a crash does.
func (p *programs) kill(log string) error {
	p.mu.Lock()
	cmd := p.all[log]
	delete(p.all, log)
	p.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("no program writes %s", log)
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
}

func (p *programs) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cmd := range p.all {
		_ = cmd.Process.Kill() // what it was for is over
		_ = cmd.Wait()
	}
	p.all = nil
}
