// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// process is `overdue run` with the embedded broker, on free ports.
type process struct {
	cmd                 *exec.Cmd
	door, admin, broker string
	dir                 string
	ready               time.Duration // from the start to ready
}

func (l *load) start(ctx context.Context, webhook string) (*process, error) {
	p := &process{}
	for _, a := range []*string{&p.door, &p.admin, &p.broker} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*a = ln.Addr().String()
		if err := ln.Close(); err != nil {
			return nil, err
		}
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "overdue-load"); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`
listen: {amqp: "127.0.0.1:0", http: %q, admin: %q}
broker:
  listen: %q
  queues:
    - {name: orders, deadLetteringOnMessageExpiration: true}
    - {name: unmonitored, deadLetteringOnMessageExpiration: true}
monitor: {entities: [{queue: orders}]}
`, p.door, p.admin, p.broker)
	if webhook != "" {
		config += fmt.Sprintf("alerts: [{webhook: {url: %q}}]\n", webhook)
	}
	file := filepath.Join(p.dir, "overdue.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, l.binary, "run", "--config", file, "--log-level", "error")
	p.cmd.Stderr = os.Stderr
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for {
		if resp, err := http.Get("http://" + p.admin + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				p.ready = time.Since(began)
				return p, nil
			}
		}
		if time.Since(began) > 10*time.Second {
			return nil, errors.Join(errors.New("not ready after 10s"), p.stop())
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *process) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, p.cmd.Wait(), os.RemoveAll(p.dir))
}

func (p *process) client() (*azservicebus.Client, error) {
	return azservicebus.NewClientFromConnectionString("Endpoint=sb://"+p.broker+";SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true", nil)
}

// resident is the resident memory of the process in MiB.
func (p *process) resident() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}
