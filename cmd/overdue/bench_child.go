// SPDX-License-Identifier: Apache-2.0

package main

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
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/httpclient"
)

const (
	benchStartTime = 20 * time.Second
	// benchStopTime is what a child gets to end. It has bounds of its own, which are shorter.
	benchStopTime = 40 * time.Second
	// benchAnswers bounds an answer of the child, in bytes: a thousand of the largest messages, escaped.
	benchAnswers = 512 << 20
)

// A benchChild is a command of this very binary, as a process of its own: memory, processor time and
// garbage collection of senders and consumers are not among what is measured, and all that they and Overdue
// have to say to each other goes over TCP, as it does for an app.
type benchChild struct {
	cmd                 *exec.Cmd
	name                string        // of the command
	stdin               io.Closer     // the child ends when it is closed, also when this process is killed
	door, broker, admin string        // addresses, "" where it has none
	ready               time.Duration // from its start until it said that it was ready
	reading             sync.WaitGroup
	gone                chan struct{} // closed when the child has hung up
	http                *http.Client

	mu    sync.Mutex
	told  map[string]int // events by the message-id they are about
	other []byte         // what else the child logs, its beginning
}

var bannerAddress = regexp.MustCompile(`^  (AMQP door|embedded broker|admin) +\w+://(\S+)`)

// benchPorts has everything listen where the system likes.
var benchPorts = map[string]string{"listen.amqp": "127.0.0.1:0", "listen.http": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "broker.listen": "127.0.0.1:0"}

// startBenchChild starts the command of a role, which is given these settings, as variables, and no others.
func startBenchChild(ctx context.Context, r role, settings map[string]string) (_ *benchChild, err error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own binary: %w", err)
	}
	c := &benchChild{name: r.name, gone: make(chan struct{}), told: map[string]int{}, http: httpclient.New(nil, time.Minute)}
	c.cmd = exec.Command(binary, r.name, "--stop-with-stdin")
	c.cmd.Args[0] = "overdue" // in tests the binary has another name
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OVERDUE_") {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	for _, some := range []map[string]string{benchPorts, settings} {
		for path, v := range some {
			if r.wants(path) {
				c.cmd.Env = append(c.cmd.Env, byPath[path].env()+"="+v)
			}
		}
	}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the own binary: %w", err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the own binary: %w", err)
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the own binary: %w", err)
	}
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the own binary: %w", err)
	}
	c.reading.Go(func() { c.readLog(stderr) })
	// The banner is written at once. It ends with a connection string, unless there is neither a door nor a broker.
	last := "Endpoint="
	if !r.proxy && !r.broker {
		last = "  namespace "
	}
	addressed := make(chan struct{})
	c.reading.Go(func() { c.readBanner(stdout, last, addressed) })
	if err := c.awaitReady(ctx, addressed); err != nil {
		err = fmt.Errorf("overdue %s does not become ready: %w", c.name, err)
		if stopped := c.stop(); stopped != nil {
			return nil, errors.Join(err, stopped) // with what it has logged
		}
		return nil, errors.Join(err, c.complaint())
	}
	c.ready = time.Since(began)
	return c, nil
}

// readBanner takes the addresses from what the child prints when it serves, and closes addressed when it has read a line
// that begins with last.
func (c *benchChild) readBanner(r io.Reader, last string, addressed chan struct{}) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if m := bannerAddress.FindStringSubmatch(lines.Text()); m != nil {
			*map[string]*string{"AMQP door": &c.door, "embedded broker": &c.broker, "admin": &c.admin}[m[1]] = m[2]
		}
		if addressed != nil && strings.HasPrefix(lines.Text(), last) {
			close(addressed)
			addressed = nil
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line without an end; ends with the process
}

// readLog counts the events that the child tells of: its log is the one sink that is always there. It costs
// the child least, and so blurs the measurement least.
func (c *benchChild) readLog(r io.Reader) {
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

// maxBenchComplaint bounds what is kept of a child's log for an error, in bytes.
const maxBenchComplaint = 2 << 10

func (c *benchChild) logged(line []byte) {
	var e struct {
		Event struct{ Type, Subject string }
	}
	err := json.Unmarshal(line, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && e.Event.Type == alert.TypeMissed:
		c.told[e.Event.Subject]++
	case len(c.other) < maxBenchComplaint:
		c.other = append(c.other, line[:min(len(line), maxBenchComplaint)]...)
	}
}

// toldOf are the events so far, by the message-id they are about.
func (c *benchChild) toldOf() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.told)
}

// complaint is what the child has logged beside events, nil if that is nothing.
func (c *benchChild) complaint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.other) == 0 {
		return nil
	}
	return fmt.Errorf("it has logged: %s", bytes.TrimSpace(c.other))
}

func (c *benchChild) awaitReady(ctx context.Context, addressed chan struct{}) error {
	ctx, stop := context.WithTimeout(ctx, benchStartTime)
	defer stop()
	select {
	case <-addressed:
	case <-c.gone:
		return errors.New("it has ended")
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
			return errors.New("it has ended")
		case <-ctx.Done():
			return err
		}
	}
}

// stop ends the child and waits until it has.
func (c *benchChild) stop() error {
	closeErr := c.stdin.Close()
	stuck := time.AfterFunc(benchStopTime, func() { _ = c.cmd.Process.Kill() }) // then Wait says so
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

// get asks the child over HTTP.
func (c *benchChild) get(ctx context.Context, addr, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(io.LimitReader(resp.Body, benchAnswers))
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for %s: %s: %s", path, resp.Status, clip(string(body)))
	}
	return body, nil
}

// metrics are the child's samples, by name and labels as /metrics writes them.
func (c *benchChild) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := c.get(ctx, c.admin, "/metrics")
	if err != nil {
		return nil, err
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
				samples[line[:i]] = v
			}
		}
	}
	return samples, nil
}

// benchCounts is what is in a queue, by the broker's own account. To ask for it is no receive and moves nothing.
type benchCounts struct {
	Path                                    string
	Active, Deferred, Scheduled, DeadLetter int
}

// counts are those of all queues, by path.
func (c *benchChild) counts(ctx context.Context) (map[string]benchCounts, error) {
	text, err := c.get(ctx, c.broker, "/_overdue/entities")
	if err != nil {
		return nil, err
	}
	var list []benchCounts
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the broker's entities: %w", err)
	}
	all := map[string]benchCounts{}
	for _, q := range list {
		all[q.Path] = q
	}
	return all, nil
}

// A benchLetter is a dead letter, with what the broker has stamped on it.
type benchLetter struct {
	SequenceNumber   int64
	MessageID        string
	EnqueuedTime     time.Time
	DeadLetteredTime time.Time
}

// deadLetters are all that the queue's dead-letter queue holds.
func (c *benchChild) deadLetters(ctx context.Context, queue string) ([]benchLetter, error) {
	const page = 1000
	var all []benchLetter
	for from := int64(0); ; {
		text, err := c.get(ctx, c.broker, fmt.Sprintf("/_overdue/messages/%s/%s?from=%d&max=%d", queue, url.PathEscape("$DeadLetterQueue"), from, page))
		if err != nil {
			return nil, err
		}
		var letters []benchLetter
		if err := json.Unmarshal(text, &letters); err != nil {
			return nil, fmt.Errorf("read the dead letters: %w", err)
		}
		if len(letters) == 0 {
			return all, nil
		}
		all = append(all, letters...)
		from = letters[len(letters)-1].SequenceNumber + 1
	}
}
