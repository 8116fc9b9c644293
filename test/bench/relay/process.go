// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"overdue/test/bench/usage"
)

// A process is a command of the binary that is measured.
type process struct {
	cmd                     *exec.Cmd
	endpoint, broker, admin string // addresses, "" where it has none
}

const connectionString = "Endpoint=sb://%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

// scene is a broker and, where the way leads through something, what stands before it.
type scene struct{ broker, forwarder, sidecar *process }

// set starts what a way needs.
func (b *bench) set(ctx context.Context, by hop) (s scene, err error) {
	broker := []string{
		"OVERDUE_BROKER_LISTEN=127.0.0.1:0", "OVERDUE_BROKER_AUTO_CREATE=true",
		"OVERDUE_BROKER_MAX_MESSAGE_SIZE=1MiB", // as of a Premium namespace, so that batches are as large as there
	}
	endpoint := []string{
		"OVERDUE_LISTEN_AMQP=127.0.0.1:0", "OVERDUE_LISTEN_HTTP=127.0.0.1:0", "OVERDUE_LISTEN_ADMIN=127.0.0.1:0",
		"OVERDUE_COMPANIONS=" + b.companions,
		"OVERDUE_MONITOR_ENTITIES=[{queue: " + watchedQueue + "}]",
	}
	if b.one {
		s.broker, err = b.start(ctx, "run", append(broker, endpoint...)...)
		s.sidecar = s.broker
	} else {
		s.broker, err = b.start(ctx, "broker", broker...)
	}
	switch {
	case err != nil:
		return s, err
	case by == byForwarder:
		s.forwarder, err = startForwarder(ctx, s.broker.broker)
	case by == bySidecar && !b.one:
		s.sidecar, err = b.start(ctx, "proxy", append(endpoint, "OVERDUE_NAMESPACE="+fmt.Sprintf(connectionString, s.broker.broker))...)
	}
	if err != nil {
		err = errors.Join(err, s.broker.stop())
	}
	return s, err
}

func (s scene) stop() (err error) {
	if s.forwarder != nil {
		err = s.forwarder.kill()
	}
	if s.sidecar != nil && s.sidecar != s.broker {
		err = errors.Join(err, s.sidecar.stop())
	}
	return errors.Join(err, s.broker.stop())
}

// between is what stands between client and broker on that way, nil for nothing.
func (s scene) between(w way) *process {
	return map[hop]*process{byForwarder: s.forwarder, bySidecar: s.sidecar}[w.by]
}

// address is where a client of that way connects to.
func (s scene) address(w way) string {
	if p := s.between(w); p != nil {
		return p.endpoint
	}
	return s.broker.broker
}

var addresses = regexp.MustCompile(`(?m)^  (AMQP endpoint|embedded broker|admin) +\w+://(\S+)`)

// start starts a command with settings of its own and waits until it is ready. The banner on
// standard output ends with the connection string.
func (b *bench) start(ctx context.Context, command string, settings ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, b.binary, command, "--log-level", "error")}
	p.cmd.Env = append(os.Environ(), settings...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	var banner strings.Builder
	lines := bufio.NewReader(out)
	for line := ""; err == nil && !strings.HasPrefix(line, "Endpoint="); {
		line, err = lines.ReadString('\n')
		banner.WriteString(line)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with the process
	for _, m := range addresses.FindAllStringSubmatch(banner.String(), -1) {
		switch m[1] {
		case "AMQP endpoint":
			p.endpoint = m[2]
		case "embedded broker":
			p.broker = m[2]
		case "admin":
			p.admin = m[2]
		}
	}
	for end := time.Now().Add(10 * time.Second); err == nil; time.Sleep(time.Millisecond) {
		if _, notReady := p.ask("/readyz"); notReady == nil {
			return p, nil
		} else if time.Now().After(end) {
			err = notReady
		}
	}
	return nil, errors.Join(fmt.Errorf("overdue %s does not become ready: %w", command, err), p.stop())
}

func (p *process) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, p.cmd.Wait())
}

// ask asks the admin port.
func (p *process) ask(path string) (string, error) {
	resp, err := http.Get("http://" + p.admin + path)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return string(answer), err
}

// spent is what a process has used so far.
type spent struct {
	cpu     time.Duration // in user and system mode
	mallocs float64
}

func (p *process) spent() (spent, error) {
	if p.admin == "" {
		return spent{cpu: usage.CPU(p.cmd.Process.Pid)}, nil
	}
	metrics, err := p.ask("/metrics")
	if err != nil {
		return spent{}, err
	}
	u := spent{cpu: usage.CPU(p.cmd.Process.Pid)}
	for line := range strings.Lines(metrics) {
		if v, ok := strings.CutPrefix(line, "go_memstats_mallocs_total "); ok {
			u.mallocs, err = strconv.ParseFloat(strings.TrimSpace(v), 64)
			return u, err
		}
	}
	return u, errors.New("no go_memstats_mallocs_total in /metrics")
}
