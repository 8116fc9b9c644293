// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// runBroker runs `overdue broker` with these arguments until the test ends. It returns the output
// up to the line with the broker's address, and that address, as every test suite does that starts
// a broker.
func runBroker(t *testing.T, args ...string) (printed, addr string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, stop := context.WithCancel(context.Background())
	stdout, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"broker"}, args...), func(string) string { return "" }, w, io.Discard)
		w.Close()
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("overdue broker %s: %v", strings.Join(args, " "), err)
		}
	})
	lines := bufio.NewScanner(stdout)
	for addr == "" && lines.Scan() {
		printed += lines.Text() + "\n"
		if rest, ok := strings.CutPrefix(lines.Text(), "Endpoint=sb://"); ok {
			addr, _, _ = strings.Cut(rest, ";")
		}
	}
	if addr == "" {
		t.Fatalf("no line begins with Endpoint=:\n%s", printed)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // to the end of what it prints
	return printed, addr
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

// The ports that listeners have by default would be fought for.
func TestBrokersOnAnyFreePortDoNotMeet(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:9095", "127.0.0.1:5671"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue // somebody has it, which is what is wanted
		}
		defer ln.Close()
	}
	_, one := runBroker(t, "--broker-listen", "127.0.0.1:0", "--broker-tls-enabled", "--monitor-queue", "companions")
	_, two := runBroker(t, "--broker-listen", "127.0.0.1:0", "--broker-tls-enabled", "--broker-monitor-queue=false")
	if got := get(t, "http://"+one+"/_overdue/entities"); !strings.Contains(got, `"companions"`) {
		t.Errorf("entities of a broker with a monitor queue: %s", got)
	}
	if got := get(t, "http://"+two+"/_overdue/entities"); got != "200 []\n" {
		t.Errorf("entities of a broker without one = %s, want none", got)
	}
}

func TestBannerOfTheBrokerSaysHowNamespacesAndQueuesComeToBe(t *testing.T) {
	printed, _ := runBroker(t, "--broker-listen", "127.0.0.1:0", "--broker-isolate")
	for _, want := range []string{"Queues are made when a client names them.", "Every SharedAccessKeyName but RootManageSharedAccessKey is a namespace of its own."} {
		if !strings.Contains(printed, want) {
			t.Errorf("the banner lacks %q:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "monitored") {
		t.Errorf("the banner speaks of monitoring where nothing is monitored:\n%s", printed)
	}
	printed, _ = runBroker(t, "--broker-listen", "127.0.0.1:0", "--broker-auto-create=false")
	if strings.Contains(printed, "are made") || strings.Contains(printed, "of its own") {
		t.Errorf("the banner promises what was not asked for:\n%s", printed)
	}
}

// The embedded broker takes the file that the Compose file gives the official emulator.
func TestTheEmulatorsFileOfComposeIsTaken(t *testing.T) {
	printed, addr := runBroker(t, "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", "../../deploy/compose/emulator/Config.json")
	if got := get(t, "http://"+addr+"/_overdue/entities"); !strings.Contains(got, `"overdue-monitor"`) || !strings.Contains(got, `"orders"`) {
		t.Errorf("entities of a broker with the file: %s\n%s", got, printed)
	}
}
