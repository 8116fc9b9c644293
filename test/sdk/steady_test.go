// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
)

// A process is the program in one of its roles.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string // of its first connection string
	stderr bytes.Buffer
	said   chan struct{} // closed when its stdout has ended
}

// start starts the program and waits for the address that it prints.
func begin(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), said: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test has failed before it stopped the process
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	addr := make(chan string, 1)
	go func() {
		defer close(p.said)
		endpoint := regexp.MustCompile(`^Endpoint=sb://([^;/]+)`)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if m := endpoint.FindStringSubmatch(lines.Text()); m != nil && len(addr) == 0 {
				addr <- m[1]
			}
		}
	}()
	select {
	case p.addr = <-addr:
	case <-p.said:
		_ = p.cmd.Wait() // stderr says why
		t.Fatalf("%v has not started:\n%s", args, p.stderr.Bytes())
	case <-time.After(startTimeout):
		t.Fatalf("%v has not started within %v", args, startTimeout)
	}
	return p
}

// stop sends SIGTERM and waits for a clean end.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Errorf("stopping: %v", err)
	}
	late := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() }) // Wait reports it
	<-p.said
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v ended with %v, want 0:\n%s", p.cmd.Args, err, tail(p.stderr.Bytes(), 8<<10))
	}
	late.Stop()
	if bytes.Contains(p.stderr.Bytes(), []byte("DATA RACE")) {
		p.t.Errorf("a race:\n%s", p.stderr.Bytes())
	}
}

// steadyTimeout bounds one app: on a busy machine it starts late, and it waits for two minutes
// until it gives up.
const steadyTimeout = 5 * time.Minute

var steadies = map[string]func(ctx context.Context, installed, scratch string) *exec.Cmd{
	"js": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", `cp js/package.json steady/steady.js "$1" && ln -s "$0/node_modules" "$1/node_modules" && exec node "$1/steady.js" steady-js`, installed, scratch)
	},
	"python": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(installed, "bin", "python"), "-B", "steady/steady.py", "steady-python")
	},
	"java": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", javac+` -cp "$0/*" -d "$1" steady/Steady.java && exec `+java+` -cp "$0/*:$1" Steady steady-java`, installed, scratch)
	},
}

// remaining says what is left on a queue once its app has ended: messages that were never
// delivered, those that were, and whether the broker delivers them now.
func remaining(t *testing.T, connectionString, queue string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(t.Context()) }() // the test has failed already
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	peeked, err := receiver.PeekMessages(ctx, 250, nil)
	if err != nil {
		return fmt.Sprintf("The broker does not show its queue: %v", err)
	}
	counts := map[uint32]int{}
	for _, m := range peeked {
		counts[m.DeliveryCount]++
	}
	received := 0
	for received < len(peeked) {
		got, err := receiver.ReceiveMessages(ctx, len(peeked)-received, nil)
		if err != nil {
			break // the time is up
		}
		received += len(got)
	}
	return fmt.Sprintf("%d messages are left, as many by delivery count as %v; without the app the broker delivers %d", len(peeked), counts, received)
}

// Apps send and receive while the broker and their sidecar are stopped and started, and the
// sidecar's connections to the namespace are cut. One client goes on through all of it, and
// everything that was accepted arrives.
func TestAppsOutliveWhatFailsBeneathThem(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed, program := install(t), buildBroker(t)
	for sdk, command := range steadies {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			at := freeport.Address(t)
			namespace := func() *process {
				return begin(t, program, []string{"OVERDUE_BROKER_QUEUES=[{name: steady-" + sdk + ", lockDuration: 5s}]"},
					"broker", "--broker-listen", at, "--listen-admin", "127.0.0.1:0")
			}
			b := namespace()
			upstream := newForwarder(t, at, true)
			const secret = ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
			address := freeport.Address(t)
			sidecar := func() *process {
				return begin(t, program, []string{"OVERDUE_NAMESPACE=Endpoint=sb://" + upstream.addr + secret},
					"proxy", "--listen-amqp", address, "--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0")
			}
			p := sidecar()

			ctx, cancel := context.WithTimeout(t.Context(), steadyTimeout)
			defer cancel()
			app := command(ctx, installed[sdk], t.TempDir())
			app.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING=Endpoint=sb://"+address+secret)
			said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			app.Stderr = said
			stderr := func() []byte {
				text, err := os.ReadFile(said.Name())
				if err != nil {
					t.Error(err)
				}
				return tail(text, 8<<10)
			}
			stdin, err := app.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := app.StdoutPipe()
			if err == nil {
				err = app.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			sends, lines := make(chan struct{}, 10), make(chan []string, 1)
			go func() {
				var all []string
				for in := bufio.NewScanner(stdout); in.Scan(); {
					if in.Text() == "sends" {
						sends <- struct{}{}
						continue
					}
					all = append(all, in.Text())
				}
				lines <- all
			}()
			await := func(what string) {
				t.Helper()
				select {
				case <-sends:
				case <-ctx.Done():
					t.Fatalf("no app that %s:\n%s", what, stderr())
				}
			}
			await("sends")
			b.stop()
			b = namespace()
			// The messages of the embedded broker are gone with it, so the apps count from here.
			if _, err := io.WriteString(stdin, "anew\n"); err != nil {
				t.Fatal(err)
			}
			await("sends again")
			for range 2 {
				time.Sleep(time.Second)
				p.stop()
				p = sidecar()
				time.Sleep(time.Second)
				upstream.cut()
			}
			time.Sleep(time.Second)
			stdin.Close()
			all := <-lines
			if err := app.Wait(); err != nil {
				t.Errorf("the app ended with %v:\n%s", err, stderr())
			}
			sent := 0
			for _, line := range all {
				_, _ = fmt.Sscanf(line, "sent %d", &sent) // of the one line that says it
			}
			if len(all) == 0 || all[len(all)-1] != "missing 0" || sent == 0 {
				t.Errorf("the app says %q, want sends and nothing missing. %s. It complains:\n%s",
					tail([]byte(strings.Join(all, "\n")), 1000), remaining(t, "Endpoint=sb://"+b.addr+secret, "steady-"+sdk), stderr())
			}
			p.stop()
			b.stop()
			t.Logf("the app says %q", all)
		})
	}
}
