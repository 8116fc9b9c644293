// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"overdue": main})
}

// The binary from outside, in real time: see testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values["hook"] = &hook{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      scriptExits,
			"freeport":   scriptFreePort,
			"ready":      scriptReady,
			"answers":    scriptAnswers,
			"http":       scriptHTTP,
			"garbage":    scriptGarbage,
			"hook":       scriptHook,
			"terminate":  scriptTerminate,
			"told":       scriptTold,
			"deadletter": scriptDeadLetter,
		},
	})
}

const scriptPatience = 20 * time.Second

// exits CODE PROGRAM ARGS…: the program ends with that exit code.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args]")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// freeport NAME…: puts a free port of loopback into each variable.
func scriptFreePort(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		// All are held until all are known, so that they differ.
		ts.Setenv(name, strconv.Itoa(ln.Addr().(*net.TCPAddr).Port))
		defer ln.Close()
	}
}

// ready ADDR: waits until /readyz says so.
func scriptReady(ts *testscript.TestScript, _ bool, args []string) {
	await(ts, "readiness of "+args[0], func() (bool, string) {
		resp, err := http.Get("http://" + args[0] + "/readyz?verbose")
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // only for the message
		return resp.StatusCode == http.StatusOK, string(body)
	})
}

// answers URL PATTERN: waits until the answer matches.
func scriptAnswers(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	await(ts, "answer of "+args[0], func() (bool, string) {
		resp, err := http.Get(args[0])
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // what is missing does not match
		return pattern.Match(body), string(body)
	})
}

func await(ts *testscript.TestScript, what string, ok func() (bool, string)) {
	deadline := time.After(scriptPatience)
	for {
		done, last := ok()
		if done {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			ts.Fatalf("%s: not within %v; last seen: %s", what, scriptPatience, last)
		}
	}
}

// http METHOD URL [body [header: value]…]: prints status and body.
func scriptHTTP(ts *testscript.TestScript, _ bool, args []string) {
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	req, err := http.NewRequest(args[0], args[1], strings.NewReader(body))
	ts.Check(err)
	for _, h := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%d\n%s", resp.StatusCode, answer)
	ts.Check(err)
}

// garbage ADDR…: says to each address what it cannot understand.
func scriptGarbage(ts *testscript.TestScript, _ bool, args []string) {
	for _, addr := range args {
		for _, bytes := range []string{
			"\x00", "GET", "\r\n\r\n", strings.Repeat("\xff", 4096), strings.Repeat("A", 100_000),
			"AMQP\x00\x01\x00\x00\xff\xff\xff\xff\x02\x00\x00\x00", "AMQP\x03\x01\x00\x00\x00\x00\x00\x08\x02\x01\x00\x00", "AMQP\x00\x02\x00\x00",
			"AMQP\x00\x01\x00\x00\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x10\xd0", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			"POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		} {
			c, err := net.Dial("tcp", addr)
			ts.Check(err)
			// What becomes of it is the server's to say; it may hang up in the middle.
			_, _ = io.WriteString(c, bytes)
			ts.Check(c.Close())
		}
	}
}

// A hook is a webhook that remembers what it was told.
type hook struct {
	mu   sync.Mutex
	told []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, string(body))
}

// terminate: SIGTERM to everything that runs in the background.
func scriptTerminate(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			ts.Fatalf("%v", err)
		}
	}
}

// hook NAME: starts a webhook and puts its URL into the variable.
func scriptHook(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(ts.Value("hook").(*hook))
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL+"/hook")
}

// told N: waits until the webhook was told N events and prints them.
func scriptTold(ts *testscript.TestScript, _ bool, args []string) {
	h := ts.Value("hook").(*hook)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var all bytes.Buffer
	await(ts, args[0]+" events", func() (bool, string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		all.Reset()
		for _, event := range h.told {
			all.WriteString(event + "\n")
		}
		return len(h.told) >= want, all.String()
	})
	_, err = all.WriteTo(ts.Stdout())
	ts.Check(err)
}

// deadletter ADDR QUEUE: receives one message from the dead-letter queue with the SDK and
// prints its id and reason.
func scriptDeadLetter(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(embeddedConnectionString(args[0]), nil)
	ts.Check(err)
	defer func() { ts.Check(client.Close(ctx)) }()
	r, err := client.NewReceiverForQueue(args[1], &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	ts.Check(err)
	ms, err := r.ReceiveMessages(ctx, 1, nil)
	ts.Check(err)
	ts.Check(r.CompleteMessage(ctx, ms[0], nil))
	_, err = fmt.Fprintf(ts.Stdout(), "%s %s %s\n", ms[0].MessageID, *ms[0].DeadLetterReason, ms[0].Body)
	ts.Check(err)
}
