// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"overdue/internal/testing/freeport"
	"overdue/internal/testing/racetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"overdue": main})
}

// The binary from outside, in real time: see testdata/script.
func TestScripts(t *testing.T) {
	racetest.Skip(t, "hundreds of processes, which mostly start; internal/app and test/conformance show the races")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values["hook"] = &hook{}
			env.Values["app"] = &connectedApp{}
			env.Setenv("OVERDUE_LISTEN_AMQP", "127.0.0.1:0") // a script that wants another says so
			return nil
		},
		// [free:ADDR]: nobody listens there.
		Condition: func(cond string) (bool, error) {
			addr, ok := strings.CutPrefix(cond, "free:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				return false, nil
			}
			return true, ln.Close()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"app":        scriptApp,
			"exits":      scriptExits,
			"freeport":   scriptFreePort,
			"ready":      scriptReady,
			"answers":    scriptAnswers,
			"http":       scriptHTTP,
			"garbage":    scriptGarbage,
			"hangup":     scriptHangup,
			"hook":       scriptHook,
			"identity":   scriptIdentity,
			"send":       scriptSend,
			"terminate":  scriptTerminate,
			"tlsfront":   scriptTLSFront,
			"notified":   scriptNotified,
			"deadletter": scriptDeadLetter,
		},
	})
}

const scriptTimeout = 2 * time.Minute // of a busy machine

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
		port, err := freeport.Find()
		ts.Check(err)
		ts.Setenv(name, port)
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
	deadline := time.After(scriptTimeout)
	for {
		done, last := ok()
		if done {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			ts.Fatalf("%s: not within %v; last seen: %s", what, scriptTimeout, last)
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
			// The server may take the bytes or hang up in the middle.
			_, _ = io.WriteString(c, bytes)
			ts.Check(c.Close())
		}
	}
}

// hangup: SIGHUP to everything that runs in the background.
func scriptHangup(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGHUP))
	}
}

// terminate [COMMAND…]: SIGTERM to what runs one of these commands of overdue in the
// background, or to everything that runs there.
func scriptTerminate(ts *testscript.TestScript, _ bool, args []string) {
	for _, cmd := range ts.BackgroundCmds() {
		if len(args) > 0 && !slices.Contains(args, cmd.Args[1]) {
			continue
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			ts.Fatalf("%v", err)
		}
	}
}
