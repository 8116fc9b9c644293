// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/listener"
)

// runBroker runs `overdue broker` with these arguments until the test ends, and returns
// what it printed up to the line that says where it is, and the address from that line:
// what every test suite does that starts a broker.
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
	_, one := runBroker(t, "--broker-listen", "127.0.0.1:0", "--tls", "--monitor-queue", "companions")
	_, two := runBroker(t, "--broker-listen", "127.0.0.1:0", "--tls")
	if got := get(t, "http://"+one+"/_overdue/entities"); !strings.Contains(got, `"companions"`) {
		t.Errorf("entities of a broker that is told of a monitor queue: %s", got)
	}
	if got := get(t, "http://"+two+"/_overdue/entities"); got != "200 []\n" {
		t.Errorf("entities of a broker that is told of nothing = %s, want none", got)
	}
}

func TestBannerOfTheBrokerSaysHowNamespacesAndQueuesComeToBe(t *testing.T) {
	printed, _ := runBroker(t, "--broker-listen", "127.0.0.1:0", "--isolate")
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

// A client may not choose a different name for a namespace than the certificate has.
func TestSecureConnectionStringNamesWhatTheCertificateIsFor(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		names []string
		want  string
	}{
		{"127.0.0.1:5673", []string{"localhost", "127.0.0.1"}, "localhost:5673"},
		{"[::1]:5673", []string{"::1"}, "[::1]:5673"},
		{"[::]:5673", []string{"build.example", "localhost"}, "localhost:5673"},
		{"192.0.2.1:5673", []string{"*.example", "build.example"}, "build.example:5673"},
	} {
		p := &process{cfg: &config.Config{}, brokerAddrs: []string{tt.addr}}
		p.certificate = &listener.Certificate{Names: tt.names}
		want := "Endpoint=sb://" + tt.want + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
		if got := p.shownSecureConnectionString(); got != want {
			t.Errorf("at %s for %v: %s, want %s", tt.addr, tt.names, got, want)
		}
	}
}

// A file that is right for the official emulator beside Overdue names the monitor queue. It is taken with what companions want, which
// the file cannot say; where it could not hold companions at all it is refused with what to change.
func TestAFileOfTheEmulatorMayNameTheMonitorQueue(t *testing.T) {
	for properties, want := range map[string]string{
		`{"LockDuration": "PT1M", "MaxDeliveryCount": 10, "DefaultMessageTimeToLive": "PT1H"}`: "",
		`{"LockDuration": "PT5M", "RequiresDuplicateDetection": true}`:                         "",
		`{"RequiresSession": true}`: `broker.emulatorConfig: queue "Overdue-Monitor", the monitor queue: it requires sessions, which companions do not have; set RequiresSession to false, or change monitorQueue`,
		`{"ForwardTo": "orders"}`:   `it forwards to orders, where no monitor sees the companions; take ForwardTo out, or change monitorQueue`,
	} {
		file := filepath.Join(t.TempDir(), "Config.json")
		text := `{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "orders"}, {"Name": "Overdue-Monitor", "Properties": ` + properties + `}]}]}}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := loadText(t, "", nil, map[string]string{"broker.emulatorConfig": file})
		if err == nil {
			err = c.CheckRole(config.RoleRun)
		}
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", properties, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", properties, err)
			continue
		}
		for _, r := range []config.Role{config.RoleRun, config.RoleBroker} {
			var found []broker.QueueConfig
			set, _ := embeddedBroker(c, r, zap.NewNop())
			for _, q := range set.Queues {
				if strings.EqualFold(q.Name, "overdue-monitor") {
					found = append(found, q)
				}
			}
			if len(found) != 1 || found[0].MaxDeliveryCount != 2000 || found[0].DefaultMessageTimeToLive != 0 || found[0].LockDuration < time.Minute {
				t.Errorf("%s: overdue %s makes %+v, want one queue for companions", properties, r.Name, found)
			}
			if warned := strings.Join(c.EmulatorWarnings(), "; "); !strings.Contains(warned, "queue Overdue-Monitor: DefaultMessageTimeToLive, MaxDeliveryCount; it is the monitor queue") {
				t.Errorf("%s: warnings %q, want what is not heeded", properties, warned)
			}
			if strings.Contains(properties, "Dup") && (len(found) != 1 || !found[0].RequiresDuplicateDetection || found[0].LockDuration != 5*time.Minute) {
				t.Errorf("%s: overdue %s makes %+v, want what the file says where that will do", properties, r.Name, found)
			}
		}
	}
}

// What the Compose file gives the official emulator is good for the embedded broker, too.
func TestTheEmulatorsFileOfComposeIsTaken(t *testing.T) {
	printed, addr := runBroker(t, "--broker-listen", "127.0.0.1:0", "--emulator-config", "../../deploy/compose/emulator/Config.json")
	if got := get(t, "http://"+addr+"/_overdue/entities"); !strings.Contains(got, `"overdue-monitor"`) || !strings.Contains(got, `"orders"`) {
		t.Errorf("entities of a broker with the file: %s\n%s", got, printed)
	}
}
