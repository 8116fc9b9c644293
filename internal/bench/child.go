// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"overdue/internal/httpclient"
)

const startTimeout = time.Minute

// A child is a command of the overdue binary as a process of its own. So the memory, processor
// time and garbage collection of senders and consumers are not part of the measurement, and
// they reach Overdue over TCP as an app does.
type child struct {
	process
	amqp, broker, admin string        // addresses; "" = none
	ready               time.Duration // from its start until it was ready
	http                *http.Client

	events map[string]notice // of missed deadlines, by message-id; with mu
}

// settings are environment variables without their prefix.
type settings map[string]string

// settingPrefix is the prefix of the variables that overdue reads.
const settingPrefix = "OVERDUE_"

// monitorQueue is empty again when a case has ended.
const monitorQueue = "overdue-monitor"

// usualSettings make everything listen on free ports of loopback. The log is always a sink, and the
// cheapest one for the child, so it disturbs the measurement least.
var usualSettings = settings{
	"LISTEN_AMQP": "127.0.0.1:0", "LISTEN_HTTP": "127.0.0.1:0", "LISTEN_ADMIN": "127.0.0.1:0",
	"BROKER_LISTEN": "127.0.0.1:0",
	"MONITOR_QUEUE": monitorQueue,
	"LOG_LEVEL":     "warn", "LOG_FORMAT": "json",
}

// environment returns the variables of a child: these settings and none of the caller's.
func environment(given settings) (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, settingPrefix) {
			env = append(env, v)
		}
	}
	for _, some := range []settings{usualSettings, given} {
		for name, v := range some {
			env = append(env, settingPrefix+name+"="+v)
		}
	}
	return env
}

// startChild starts a command with these settings, and returns when it is ready.
func startChild(ctx context.Context, p *Program, command string, given settings) (*child, error) {
	c := &child{events: map[string]notice{}, http: httpclient.New(nil, time.Minute)}
	cmd := overdueCommand(p, command, "--stop-with-stdin")
	cmd.Env = environment(given)
	banner := &bannerReader{child: c, last: "Endpoint=", addressed: make(chan struct{})}
	if command == "monitor" { // it has no endpoint for apps
		banner.last = "  namespace "
	}
	began := time.Now()
	if err := c.start("overdue "+command, cmd, banner.read, c.logged); err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx, banner.addressed); err != nil {
		err = fmt.Errorf("overdue %s did not become ready: %w", command, err)
		if stopped := c.stop(); stopped != nil {
			return nil, errors.Join(err, stopped) // with the child's log
		}
		return nil, errors.Join(err, c.complaint())
	}
	c.ready = time.Since(began)
	return c, nil
}

// A bannerReader takes the addresses from what a child prints when it serves, at once. It closes
// addressed after a line that begins with last.
type bannerReader struct {
	child     *child
	last      string
	addressed chan struct{}
	ended     bool
}

var bannerAddress = regexp.MustCompile(`^  (AMQP endpoint|embedded broker|admin) +\w+://(\S+)`)

func (b *bannerReader) read(line []byte) {
	if b.ended {
		return
	}
	if m := bannerAddress.FindSubmatch(line); m != nil {
		*map[string]*string{"AMQP endpoint": &b.child.amqp, "embedded broker": &b.child.broker,
			"admin": &b.child.admin}[string(m[1])] = string(m[2])
	}
	if b.ended = strings.HasPrefix(string(line), b.last); b.ended {
		close(b.addressed)
	}
}

// logged counts a notification, or keeps the line for complaint.
func (c *child) logged(line []byte) {
	read := time.Now()
	var e struct {
		Verdict, Evidence, Lag string
		MessageID              string `json:"message_id"`
		Deadline               time.Time
	}
	if err := json.Unmarshal(line, &e); err != nil || e.Verdict != "missed" {
		c.keepLine(line)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, again := c.events[e.MessageID]
	if lag, err := time.ParseDuration(e.Lag); !again && err == nil {
		n.at, n.evidence, n.moved = read, e.Evidence, e.Deadline.Add(lag)
	}
	n.count++
	c.events[e.MessageID] = n
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

// notifiedCount is how many messages have a notification.
func (c *child) notifiedCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
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
