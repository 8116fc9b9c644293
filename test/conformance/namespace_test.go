// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tier is what kind of namespace it is.
type tier string

const (
	tierStandard tier = "Standard"
	tierPremium  tier = "Premium"
)

// maxMessageSize is that of the tier.
func (t tier) maxMessageSize() string {
	if t == tierPremium {
		return "100MiB"
	}
	return "256KiB"
}

// A way is how the tests reach a namespace.
type way string

const (
	wayDirect way = "direct"
	wayRelay  way = "relay" // through the AMQP endpoint, every queue and topic monitored
)

// The ports of Service Bus, and some of ours.
const (
	portHTTPS  = 443
	portAMQPS  = 5671
	portAdmin  = 9095
	portAMQP   = 5672 // of an endpoint that no test uses
	portBroker = 5673 // of the broker behind the endpoints
)

// The keys of a namespace, by what they are called and may do.
const (
	keyRoot       = "RootManageSharedAccessKey"
	keyNoManage   = "send-and-listen"
	keySendOnly   = "send"
	keyListenOnly = "listen"
)

// secret is the value of every key. Nothing is behind it that is worth guarding.
const secret = "Y29uZm9ybWFuY2UtY29uZm9ybWFuY2UtY29uZm9ybWE="

// directListen is where a broker that is reached directly listens. relayListen is where one does
// that has the proxy before it: all that the tests say goes through an endpoint, which passes on
// their credentials.
const (
	directListen = `listen: {admin: "%[1]s:%[2]d"}
broker:
  listen: "%[1]s:%[3]d"
  tls: {enabled: true, listen: "%[1]s:%[4]d", hosts: ["%[5]s"], directory: %[6]q}
`
	relayListen = `listen:
  admin: "%[1]s:%[2]d"
  http: "%[1]s:%[3]d"
  amqps: "%[1]s:%[4]d"
  amqp: "%[1]s:%[7]d"
  tls: {hosts: ["%[5]s"], directory: %[6]q}
proxy: {credentials: client}
companions: each
monitor: {deadline: 1h}
broker:
  listen: "%[1]s:%[8]d"
`
)

// brokerConfig is the rest of the configuration. The queues are those that test-resources.bicep of
// the SDK makes. Nobody here could sign a JSON Web Token.
const brokerConfig = `  keys:
    - {name: ` + keyRoot + `, key: "` + secret + `", manage: true}
    - {name: ` + keyNoManage + `, key: "` + secret + `", send: true, listen: true}
    - {name: ` + keySendOnly + `, key: "` + secret + `", send: true}
    - {name: ` + keyListenOnly + `, key: "` + secret + `", listen: true}
  acceptJwt: true
  maxMessageSize: %s
  queues:
    - {name: testQueue}
    - {name: testQueueWithSessions, requiresSession: true}
`

// namespace is a process of overdue that serves at addr.
type namespace struct {
	addr        netip.Addr
	certificate []byte // of the authority to trust, PEM
	cmd         *exec.Cmd
	logFile     string
	ended       chan error // how the process ended, once
}

func (n *namespace) connectionString(key string) string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", n.addr, key, secret)
}

// config is the configuration of a namespace at addr.
func (w way) config(addr netip.Addr, home string, t tier, hosts []string) string {
	args := []any{addr, portAdmin, portHTTPS, portAMQPS, strings.Join(hosts, `", "`), home}
	head := directListen
	if w == wayRelay {
		head, args = relayListen, append(args, portAMQP, portBroker)
	}
	return fmt.Sprintf(head, args...) + fmt.Sprintf(brokerConfig, t.maxMessageSize())
}

// command is that of overdue which serves a namespace this way.
func (w way) command() string {
	if w == wayRelay {
		return "run"
	}
	return "broker"
}

// startNamespace starts overdue at addr, on the ports of Service Bus, and returns when it is ready.
// It stops at the end of the test, which fails if it does not end well. hosts are the other
// addresses that its certificate is for.
func startNamespace(t *testing.T, p *plan, w way, kind tier, addr netip.Addr, hosts ...string) *namespace {
	t.Helper()
	home := t.TempDir()
	configFile := filepath.Join(home, "overdue.yaml")
	hosts = append(hosts, addr.String())
	if err := os.WriteFile(configFile, []byte(w.config(addr, home, kind, hosts)), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &namespace{addr: addr, logFile: filepath.Join(home, "log"), ended: make(chan error, 1)}
	log, err := os.Create(n.logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has it open
	args := []string{w.command(), "--config", configFile}
	if w == wayDirect { // each way of keeping messages passes the tests once
		args = append(args, "--broker-directory", filepath.Join(home, "broker"))
	}
	n.cmd = exec.Command(p.Programs[w], args...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.cmd.Wait() }()
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := n.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.certificate, err = os.ReadFile(filepath.Join(home, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	return n
}

// How long a broker may take to start and to stop. It takes a fraction of a second.
const answerTimeout = 2 * time.Minute

// awaitReady asks /readyz until it says yes.
func (n *namespace) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	url := fmt.Sprintf("http://%s/readyz", netip.AddrPortFrom(n.addr, portAdmin))
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-n.ended:
			n.ended <- err
			return fmt.Errorf("the broker at %s ended before it was ready", n.addr)
		case <-ctx.Done():
			return fmt.Errorf("the broker at %s is not ready: %w", n.addr, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// traffic is what went through a relay, as its process has counted it.
type traffic struct {
	monitored, unmonitored int // messages that the tests have sent
	companions             int // written for them; messages that are sent together share one
}

func (t *traffic) add(more traffic) {
	t.monitored += more.monitored
	t.unmonitored += more.unmonitored
	t.companions += more.companions
}

// relayed returns what the tests have sent through the endpoints.
func (n *namespace) relayed(ctx context.Context) (t traffic, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/metrics", netip.AddrPortFrom(n.addr, portAdmin)), nil)
	if err != nil {
		return traffic{}, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return traffic{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return traffic{}, err
	}
	sum := func(pattern string) (total int) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			f, parseErr := strconv.ParseFloat(string(m[1]), 64)
			err = errors.Join(err, parseErr)
			total += int(f)
		}
		return total
	}
	return traffic{
		monitored:   sum(`(?m)^overdue_sends_total\{endpoint="amqp",[^}]*result="monitored"\} (\S+)$`),
		unmonitored: sum(`(?m)^overdue_sends_total\{endpoint="amqp",[^}]*result="unmonitored"\} (\S+)$`),
		companions:  sum(`(?m)^overdue_companions_total\{result="accepted"\} (\S+)$`),
	}, err
}

// stop ends the broker. The error says that it did not end well, which a data race is, too,
// and holds its log then.
func (n *namespace) stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	var err error
	select {
	case err = <-n.ended:
	case <-time.After(answerTimeout):
		_ = n.cmd.Process.Kill()
		err = fmt.Errorf("it did not stop: %w", <-n.ended)
	}
	if err == nil {
		return nil
	}
	log, readErr := os.ReadFile(n.logFile)
	return fmt.Errorf("the broker at %s: %w\n%s", n.addr, errors.Join(err, readErr), log)
}
