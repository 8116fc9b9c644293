// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"overdue/internal/httpclient"
)

const (
	startTimeout = time.Minute
	// stopTimeout bounds the stop of a child, whose own timeouts are shorter.
	stopTimeout = 40 * time.Second
	// maxAnswer bounds an answer of the child, in bytes: a thousand of the largest messages, escaped.
	maxAnswer = 512 << 20
)

// A child is a command of the overdue binary as a process of its own. So the memory, processor
// time and garbage collection of senders and consumers are not part of the measurement, and
// they reach Overdue over TCP as an app does.
type child struct {
	cmd  *exec.Cmd
	name string // of the command
	// the child ends when stdin is closed, also if this process is killed
	stdin               io.Closer
	amqp, broker, admin string        // addresses; "" = none
	ready               time.Duration // from its start until it was ready
	reading             sync.WaitGroup
	gone                chan struct{} // closed when the child has closed its output
	http                *http.Client

	mu     sync.Mutex
	events map[string]notice // of missed deadlines, by message-id
	other  []byte            // the beginning of the rest of the log
}

var bannerAddress = regexp.MustCompile(`^  (AMQP endpoint|embedded broker|admin) +\w+://(\S+)`)

// settings are environment variables without their prefix.
type settings map[string]string

// anyPort makes everything listen on free ports of loopback.
var anyPort = settings{
	"LISTEN_AMQP": "127.0.0.1:0", "LISTEN_HTTP": "127.0.0.1:0", "LISTEN_ADMIN": "127.0.0.1:0",
	"BROKER_LISTEN": "127.0.0.1:0",
}

// settingPrefix is the prefix of the variables that overdue reads.
const settingPrefix = "OVERDUE_"

// startChild starts a command with these settings and none of the caller's, and returns when it
// is ready.
func startChild(ctx context.Context, p *Program, command string, given settings) (_ *child, err error) {
	c := &child{name: command, gone: make(chan struct{}), events: map[string]notice{},
		http: httpclient.New(nil, time.Minute)}
	c.cmd = exec.Command(p.Binary, command, "--stop-with-stdin")
	c.cmd.Args[0] = "overdue" // the test binary has another name
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, settingPrefix) {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	for _, some := range []settings{anyPort, given} {
		for name, v := range some {
			c.cmd.Env = append(c.cmd.Env, settingPrefix+name+"="+v)
		}
	}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start overdue: %w", err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start overdue: %w", err)
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start overdue: %w", err)
	}
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start overdue: %w", err)
	}
	c.reading.Go(func() { c.readLog(stderr) })
	// The banner is written at once. It ends with a connection string, unless the command has no
	// endpoint for apps.
	last := "Endpoint="
	if command == "monitor" {
		last = "  namespace "
	}
	addressed := make(chan struct{})
	c.reading.Go(func() { c.readBanner(stdout, last, addressed) })
	if err := c.awaitReady(ctx, addressed); err != nil {
		err = fmt.Errorf("overdue %s did not become ready: %w", c.name, err)
		if stopped := c.stop(); stopped != nil {
			return nil, errors.Join(err, stopped) // with the child's log
		}
		return nil, errors.Join(err, c.complaint())
	}
	c.ready = time.Since(began)
	return c, nil
}

// readBanner takes the addresses from what the child prints when it serves. It closes addressed
// after a line that begins with last.
func (c *child) readBanner(r io.Reader, last string, addressed chan struct{}) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if m := bannerAddress.FindStringSubmatch(lines.Text()); m != nil {
			*map[string]*string{"AMQP endpoint": &c.amqp, "embedded broker": &c.broker,
				"admin": &c.admin}[m[1]] = m[2]
		}
		if addressed != nil && strings.HasPrefix(lines.Text(), last) {
			close(addressed)
			addressed = nil
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long; ends with the process
}

// readLog counts notifications. The log is always a sink, and the cheapest one for the child, so it
// disturbs the measurement least.
func (c *child) readLog(r io.Reader) {
	defer close(c.gone)
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			c.logged(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// maxComplaint bounds the part of a child's log that an error quotes, in bytes.
const maxComplaint = 2 << 10

func (c *child) logged(line []byte) {
	read := time.Now()
	var e struct {
		Verdict, Evidence, Lag string
		MessageID              string `json:"message_id"`
		Deadline               time.Time
	}
	err := json.Unmarshal(line, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && e.Verdict == "missed":
		n, again := c.events[e.MessageID]
		if lag, err := time.ParseDuration(e.Lag); !again && err == nil {
			n.at, n.evidence, n.moved = read, e.Evidence, e.Deadline.Add(lag)
		}
		n.count++
		c.events[e.MessageID] = n
	case len(c.other) < maxComplaint:
		c.other = append(c.other, line[:min(len(line), maxComplaint)]...)
	}
}

// A notice is the child's log of one missed deadline.
type notice struct {
	count    int       // of events
	at       time.Time // when the first of them was read here
	evidence string    // as logged; "" = none
	moved    time.Time // when it was dead-lettered, as logged
}

// notices are the notifications of missed deadlines so far, by message-id.
func (c *child) notices() map[string]notice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.events)
}

// notified returns how often each of them was notified.
func (c *child) notified() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[string]int, len(c.events))
	for id, n := range c.events {
		counts[id] = n.count
	}
	return counts
}

// notifiedCount is how many messages have a notification.
func (c *child) notifiedCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

// complaint returns the child's log without events as an error, or nil if there is none.
func (c *child) complaint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.other) == 0 {
		return nil
	}
	return fmt.Errorf("its log: %s", bytes.TrimSpace(c.other))
}

func (c *child) awaitReady(ctx context.Context, addressed chan struct{}) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	select {
	case <-addressed:
	case <-c.gone:
		return errors.New("the process has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		_, err := c.get(ctx, c.admin, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-c.gone:
			return errors.New("the process has ended")
		case <-ctx.Done():
			return err
		}
	}
}

// stop ends the child and waits until it has.
func (c *child) stop() error {
	closeErr := c.stdin.Close()
	stuck := time.AfterFunc(stopTimeout, func() { _ = c.cmd.Process.Kill() }) // then Wait reports it
	defer stuck.Stop()
	c.reading.Wait() // before Wait, which closes the pipes
	if err := c.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("the measured overdue %s: %w", c.name, err), c.complaint())
	}
	if closeErr != nil {
		return fmt.Errorf("stop the measured overdue %s: %w", c.name, closeErr)
	}
	return nil
}
