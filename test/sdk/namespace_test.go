// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
)

// For a busy machine: both take some milliseconds.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 2 * time.Minute
)

// buildBroker builds the program, with the race detector where the test has it.
func buildBroker(t *testing.T) (file string) {
	t.Helper()
	if racetest.Enabled {
		return program.Build(t, "-race")
	}
	return program.Build(t)
}

// A namespace is the server of one suite. It is `overdue broker` with broker.yaml, on a port of its
// own that takes AMQP, TLS, WebSocket and HTTP. Or it is `overdue run`, which has its endpoints in
// front of the same.
type namespace struct {
	endpoint  string // takes AMQP: the broker, or the proxy in front of it
	secure    string // takes AMQP and WebSocket over TLS; likewise
	addr      string // of the broker
	key       string // for endpoint and secure
	caFile    string // whom to trust for TLS
	forwarder *forwarder
}

const (
	brokerKey   = "c2VjcmV0LWtleQ==" // as in broker.yaml
	endpointKey = "ZW5kcG9pbnQtb2YtdGhlLXRlc3Q="
)

// newNamespace starts one for a test, and stops it when the test ends. role is the
// command, broker or run; with credentials of client the endpoints pass on the keys of apps.
func newNamespace(t *testing.T, program, role, credentials string) *namespace {
	t.Helper()
	certs := t.TempDir()
	ns := &namespace{caFile: filepath.Join(certs, "ca.pem"), key: brokerKey}
	env := append(os.Environ(), "OVERDUE_BROKER_TLS_LISTEN=127.0.0.1:0", "OVERDUE_BROKER_TLS_DIRECTORY="+certs)
	args := []string{role, "--config", "broker.yaml", "--broker-listen", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"}
	says := []*string{&ns.addr} // in the order in which it prints them
	if role == "broker" {       // each way of keeping messages passes the scenarios once
		env = append(env, "OVERDUE_BROKER_DIRECTORY="+filepath.Join(t.TempDir(), "broker"))
	} else {
		args = append(args, "--listen-amqp", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", "--listen-amqps", "127.0.0.1:0")
		env = append(env, "OVERDUE_LISTEN_TLS_DIRECTORY="+certs, "OVERDUE_PROXY_CREDENTIALS="+credentials)
		if says = []*string{&ns.endpoint, &ns.secure, &ns.addr}; credentials == "client" {
			says = []*string{&ns.secure, &ns.addr}
		} else {
			ns.key = endpointKey
			env = append(env, "OVERDUE_LISTEN_KEYS=[{name: RootManageSharedAccessKey, key: "+endpointKey+", manage: true}]")
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Env = env
	start(t, cmd, says...)
	ns.endpoint = cmp.Or(ns.endpoint, ns.addr)
	ns.secure = cmp.Or(ns.secure, onLocalhost(ns.addr))
	ns.forwarder = newForwarder(t, ns.endpoint, false)
	return ns
}

// start starts the program, and stops it when the test ends. It returns when the program has
// printed where it is: says, in their order.
func start(t *testing.T, cmd *exec.Cmd, says ...*string) {
	t.Helper()
	var stderr bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	} else {
		cmd.Stderr = io.MultiWriter(cmd.Stderr, &stderr)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addrs, drained := make(chan string, len(says)), make(chan struct{})
	go func() {
		defer close(drained)
		said := regexp.MustCompile(`^(?:Endpoint=|  )sb://([^;/]+)`)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if m := said.FindStringSubmatch(lines.Text()); m != nil && len(addrs) < len(says) {
				addrs <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping the broker: %v", err)
		}
		late := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() }) // Wait reports it
		<-drained
		late.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the broker ended with %v", err)
		}
		if t.Failed() || bytes.Contains(stderr.Bytes(), []byte("DATA RACE")) {
			t.Errorf("the broker said:\n%s", tail(stderr.Bytes(), 8<<10))
		}
	})
	for _, addr := range says {
		select {
		case *addr = <-addrs:
		case <-drained:
			t.Fatal("it has not started")
		case <-time.After(startTimeout):
			t.Fatalf("it has not started within %v", startTimeout)
		}
	}
}

// onLocalhost is addr by the name that a certificate is for.
func onLocalhost(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // it was listened on
	return net.JoinHostPort("localhost", port)
}

func (ns *namespace) environment() []string {
	to := func(addr, key string) string {
		return "Endpoint=sb://" + addr + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=" + key
	}
	plain := func(addr string) string { return to(addr, ns.key) + ";UseDevelopmentEmulator=true" }
	return []string{
		"SERVICEBUS_CONNECTION_STRING=" + plain(ns.endpoint),
		"SERVICEBUS_FORWARDED_CONNECTION_STRING=" + plain(ns.forwarder.addr),
		"SERVICEBUS_CUT_URL=" + ns.forwarder.cutURL,
		"SERVICEBUS_TLS_CONNECTION_STRING=" + to(ns.secure, ns.key),
		"SERVICEBUS_ADMIN_CONNECTION_STRING=" + to(onLocalhost(ns.addr), brokerKey),
		"SERVICEBUS_CA_FILE=" + ns.caFile,
		"NODE_EXTRA_CA_CERTS=" + ns.caFile, // read by node itself, before any program
	}
}
