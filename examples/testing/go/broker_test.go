// SPDX-License-Identifier: Apache-2.0

//go:build example

package orders

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// testBroker is the broker at BROKER_ADDRESS, such as a container. Without that variable: a process on any free port.
type testBroker struct {
	address string // host:port
	stop    func()
}

func startBroker(config string) (*testBroker, error) {
	if address := os.Getenv("BROKER_ADDRESS"); address != "" {
		return &testBroker{address: address, stop: func() {}}, waitFor("http://"+address+"/health", time.Now().Add(time.Minute))
	}
	cmd := exec.Command("overdue", "broker", "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", config, "--broker-auto-create=false",
		"--broker-isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin")
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := cmp.Or(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Endpoint=sb://"); ok {
			address, _, _ := strings.Cut(rest, ";")
			// It also ends when this process is killed.
			return &testBroker{address: address, stop: func() { stdin.Close(); cmd.Wait() }}, nil
		}
	}
	return nil, errors.Join(errors.New("overdue broker did not start"), cmd.Wait())
}

func waitFor(url string, deadline time.Time) error {
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", url, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// connectionString is that of a namespace for this test alone, with the queues of the configuration.
func (b *testBroker) connectionString(t *testing.T) string {
	return "Endpoint=sb://" + b.address + ";SharedAccessKeyName=" + t.Name() + ";SharedAccessKey=any;UseDevelopmentEmulator=true"
}

// control reads or changes the state of the namespace of a test over HTTP.
func (b *testBroker) control(t *testing.T, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+b.address+"/_overdue/"+path+"?namespace="+url.QueryEscape(t.Name()), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s: %s %s %v", path, resp.Status, answer, err)
	}
	return string(answer)
}
