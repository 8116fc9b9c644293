// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/freeport"

	goamqp "github.com/Azure/go-amqp"
)

const (
	// For a busy machine: RabbitMQ takes five seconds, proton a fraction of one.
	startTimeout = 5 * time.Minute
	stopTimeout  = 2 * time.Minute

	installTimeout = 5 * time.Minute // of a fresh machine; nothing is done when all is there
)

// A broker is one that is not ours.
type broker struct {
	name string
	addr string
	sasl goamqp.SASLType
	// queue is the address of a queue that a link makes by naming it.
	queue   func(name string) string
	missing string // the address of what does not exist
	// plain means that the broker has no more than plain sends and receives: no nodes of its own
	// making, no delivery annotations, no modified, no drain. They end the session.
	plain bool
}

// rabbit starts RabbitMQ out of the folder that install.sh unpacks it to. All that it
// writes, the name server of Erlang and the secret of its cluster are the test's own.
func rabbit(t *testing.T) *broker {
	t.Helper()
	home, port, names := t.TempDir(), findPort(t), findPort(t)
	write := func(name, text string) string {
		file := filepath.Join(home, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	env := append(os.Environ(),
		"HOME="+home, // of the secret
		"ERL_EPMD_PORT="+names, "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=overdue-"+port+"@localhost",
		"RABBITMQ_DIST_PORT="+findPort(t),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+write("rabbitmq-env.conf", ""),
		"RABBITMQ_CONFIG_FILE="+write("rabbitmq.conf", "listeners.tcp.1 = 127.0.0.1:"+port+"\nlog.console.level = warning\n"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+write("enabled_plugins", "[rabbitmq_amqp1_0].\n"),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(home, "mnesia"),
		"RABBITMQ_PID_FILE="+filepath.Join(home, "pid"),
		"RABBITMQ_LOGS=-",
		"RUNNING_UNDER_SYSTEMD=1", // so that the script becomes the broker, and SIGTERM reaches it
	)
	// Were it not there, RabbitMQ would start one that stays.
	start(t, env, "", "epmd", "-port", names, "-address", "127.0.0.1")
	start(t, env, "127.0.0.1:"+port, filepath.Join(installed(t), "sbin", "rabbitmq-server"))
	return &broker{
		name: "RabbitMQ", addr: "127.0.0.1:" + port,
		sasl:    goamqp.SASLTypePlain("guest", "guest"),
		queue:   func(name string) string { return "/queue/" + name },
		missing: "/exchange/missing/key",
		plain:   true,
	}
}

// proton starts the broker on proton-c.
func proton(t *testing.T) *broker {
	t.Helper()
	addr := freeport.Address(t)
	start(t, os.Environ(), addr, "/usr/bin/python3", "-B", "broker.py", addr) // Debian has proton for no other Python
	return &broker{
		name: "proton", addr: addr,
		sasl:    goamqp.SASLTypeAnonymous(),
		queue:   func(name string) string { return name },
		missing: "missing",
	}
}

// leashed is a shell's program that runs another until standard input ends, as it does when the
// test has ended, however.
const leashed = `"$@" & pid=$!; read -r _; kill $pid; wait $pid`

// start runs a program until the test ends, and returns when it can be connected to at
// addr, if any. How it says goodbye is its own affair, but it has to go.
func start(t *testing.T, env []string, addr string, command ...string) {
	t.Helper()
	name := command[0]
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%v; `make sdks` installs it", err)
	}
	var out output
	cmd := exec.Command("sh", append([]string{"-c", leashed, "sh"}, command...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &out
	cmd.WaitDelay = time.Second // a grandchild may hold its output
	leash, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // of a signal, mostly
		close(ended)
	}()
	t.Cleanup(func() {
		_ = leash.Close() // which fails when it has been closed, because the shell has ended
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = cmd.Process.Kill()
			t.Errorf("%s did not stop within %v", name, stopTimeout)
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", name, out.tail())
		}
	})
	if addr == "" {
		return
	}
	for deadline := time.Now().Add(startTimeout); ; {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			_ = nc.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve after %v: %v", name, startTimeout, err)
		}
	}
}

// output is what a program has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) tail() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.text.Bytes()
	return b[max(0, len(b)-8<<10):]
}

func findPort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// installed is the folder that RabbitMQ is unpacked in.
func installed(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "../sdk/install.sh")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("install.sh: %v\n%s", err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		if folder, ok := strings.CutPrefix(strings.TrimSpace(line), "rabbitmq="); ok {
			return folder
		}
	}
	t.Fatalf("install.sh printed no line rabbitmq=FOLDER:\n%s", out)
	return ""
}
