// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	// planVariable has the plan of the process that isolate starts.
	planVariable = "OVERDUE_TEST_PLAN"
	// lanes are the tests that run at the same time, each way.
	lanes = 4
	// testTimeout bounds one test. The slowest takes less than a minute; what takes longer hangs, and
	// the test binary then prints where.
	testTimeout = 5 * time.Minute
	// liveTests is how many live tests there are. One that is gone, or no longer found, fails the run.
	liveTests = 124
	// leastMonitored is how many messages pass the relay at least, each with a deadline: 35,390 where
	// no test repeats itself.
	leastMonitored = 35_000
	// companionNames is how many messages one companion names at most.
	companionNames = 100
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == injectorCommand { // a live test has started us
		if err := runInjector(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "fault injector:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestLiveTestsOfTheSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the tests of the SDK and runs them for minutes; not with -short")
	}
	text := os.Getenv(planVariable)
	if text == "" {
		encoded, err := json.Marshal(prepare(t))
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
		entered, err := isolate(t.Context(), planVariable+"="+text)
		if entered && err != nil {
			t.Fatalf("in a network namespace of its own: %v", err) // where it has said why
		}
		if entered {
			return
		}
		if cannot := canBind(); cannot != nil {
			t.Fatalf("the live tests dial ports 443 and 5671 of loopback addresses, which takes root or a network namespace: %v; %v", err, cannot)
		}
	} else if err := raiseLoopback(); err != nil {
		t.Fatal(err)
	}
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Tests) != liveTests {
		t.Errorf("%d live tests, want %d; a new version of the SDK changes liveTests", len(p.Tests), liveTests)
	}
	tokens := serveTokens()
	t.Cleanup(tokens.Close)
	for i, w := range []way{wayDirect, wayRelay} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			free := make(chan *lane, lanes)
			all := make([]*lane, lanes)
			for j := range all {
				all[j] = openLane(t, &p, w, i*lanes+j, tokens.URL)
				free <- all[j]
			}
			if w == wayRelay {
				t.Cleanup(func() { checkTraffic(t, all) }) // behind the last test
			}
			for _, live := range p.Tests {
				t.Run(live.String(), func(t *testing.T) {
					t.Parallel()
					l := <-free
					defer func() { free <- l }()
					l.run(t, live)
				})
			}
		})
	}
}

// A lane runs tests on two namespaces, one after the other. Lanes share nothing: the SDK's tests
// draw names of queues from the seconds of the clock and would meet on one namespace.
type lane struct {
	plan              *plan
	standard, premium *namespace
	far               netip.Addr // a distance to standard
	env               []string   // of the tests
}

func openLane(t *testing.T, p *plan, w way, number int, tokens string) *lane {
	t.Helper()
	l := &lane{plan: p, far: laneAddr(number, 2)}
	l.standard = startNamespace(t, p, w, tierStandard, laneAddr(number, 0), l.far.String())
	l.premium = startNamespace(t, p, w, tierPremium, laneAddr(number, 1))
	openDistance(t, l.far, l.standard.addr)
	var err error
	if l.env, err = l.environment(t.TempDir(), tokens); err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs one live test, which has to be there and may neither fail nor skip.
func (l *lane) run(t *testing.T, live liveTest) {
	cmd := l.plan.testProgram(t.Context(), live.Package, "-test.timeout="+testTimeout.String(), "-test.run", live.pattern())
	cmd.Env = l.env
	if distant[live.String()] != "" {
		cmd.Env = append(slices.Clone(l.env), envEndpoint+l.far.String()) // the last of a name counts
	}
	output, err := cmd.CombinedOutput()
	if err != nil || skippedTest.Match(output) || !bytes.Contains(output, []byte("--- PASS: ")) {
		t.Errorf("%v\n%s", err, output)
		return
	}
	t.Logf("%s", output)
}

// checkTraffic checks what went through the relays of a whole run. Every entity is monitored and
// has a deadline, so that no message may pass without a companion.
func checkTraffic(t *testing.T, all []*lane) {
	var sum traffic
	for _, l := range all {
		for _, n := range []*namespace{l.standard, l.premium} {
			passed, err := n.relayed(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Error(err)
			}
			sum.add(passed)
		}
	}
	t.Logf("messages that passed the relay: %d monitored, %d not; companions: %d", sum.monitored, sum.unmonitored, sum.companions)
	if whole := flag.Lookup("test.run").Value.String() == ""; whole && sum.monitored < leastMonitored {
		t.Errorf("%d messages passed the relay with a deadline, want %d at least", sum.monitored, leastMonitored)
	}
	if sum.unmonitored > 0 || sum.companions*companionNames < sum.monitored {
		t.Errorf("%d messages passed the relay without a companion, and %d with %d companions, of which each names %d at most",
			sum.unmonitored, sum.monitored, sum.companions, companionNames)
	}
}

// envEndpoint is where the tests find the host of the standard namespace.
const envEndpoint = "SERVICEBUS_ENDPOINT="

// laneAddr returns the i-th address of loopback of a lane, from 127.0.0.2 on.
func laneAddr(lane, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + 3*lane + i)})
}

// environment is the environment of the tests of one lane. It has nothing of ours but the way to
// the Go toolchain's caches, so that a developer's Azure account stays out of the game.
func (l *lane) environment(dir, tokens string) ([]string, error) {
	bundle := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(bundle, append(l.standard.certificate, l.premium.certificate...), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env := []string{
		"AMQP_FAULT_INJECTOR_PATH=" + self,
		"AZURE_RECORD_MODE=live",
		"AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential",
		"IDENTITY_ENDPOINT=" + tokens,
		"IDENTITY_HEADER=x",
		"SSL_CERT_FILE=" + bundle,
		"SSL_CERT_DIR=" + filepath.Join(dir, "no-other-certificates"),
		envEndpoint + l.standard.addr.String(),
		"SERVICEBUS_ENDPOINT_PREMIUM=" + l.premium.addr.String(),
		"SERVICEBUS_CONNECTION_STRING=" + l.standard.connectionString(keyRoot),
		"SERVICEBUS_CONNECTION_STRING_PREMIUM=" + l.premium.connectionString(keyRoot),
		"SERVICEBUS_CONNECTION_STRING_NO_MANAGE=" + l.standard.connectionString(keyNoManage),
		"SERVICEBUS_CONNECTION_STRING_SEND_ONLY=" + l.standard.connectionString(keySendOnly),
		"SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY=" + l.standard.connectionString(keyListenOnly),
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS", "GOPROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env, nil
}

// canBind says whether this process may listen where the first namespace will.
func canBind() error {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(laneAddr(0, 0), portHTTPS).String())
	if err != nil {
		return err
	}
	return ln.Close()
}
