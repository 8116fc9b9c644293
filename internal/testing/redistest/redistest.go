// SPDX-License-Identifier: Apache-2.0

// Package redistest has servers for tests: the real redis-server, which can be killed, frozen and
// started again, and one in memory for tests on fake time.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"overdue/internal/testing/freeport"

	"github.com/alicebob/miniredis/v2"
)

// timeout is for a busy machine; redis-server serves within a fraction of a second.
const timeout = 2 * time.Minute

// InMemory starts a server in memory and returns its address. On fake time it MUST be started
// outside of the bubble.
func InMemory(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// A Server is a redis-server of a test.
type Server struct {
	Addr string
	t    testing.TB
	dir  string
	args []string // of the program, its name first

	// calls are made outside of the bubble of a test on fake time, which a goroutine that waits for a
	// process would stop.
	calls   chan func() error
	results chan error
	pid     int
	leash   io.Closer     // closed, the program is killed
	done    chan struct{} // closed when it has ended
}

// FreePort is a port of 127.0.0.1 for a server of the test.
func FreePort(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// busPort is a FreePort for a server of a cluster, which listens 10,000 ports above as well: where
// connections get theirs.
func busPort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := FreePort(t)
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		if ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n+10_000))); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("no port for a server of a cluster is free")
	return ""
}

// Start runs a redis-server until the test ends. args are settings as on its command line:
// "--appendonly", "yes".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs redis-server; not with -short")
	}
	port := FreePort(t)
	if slices.Contains(args, "--cluster-enabled") {
		port = busPort(t)
	}
	s := &Server{Addr: "127.0.0.1:" + port, t: t, dir: t.TempDir()}
	s.args = append([]string{"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--loglevel", "warning"}, args...)
	s.begin()
	return s
}

// Sentinel runs a Sentinel that watches master as mymaster, and takes it for gone after three
// seconds: on a busy machine it is silent for one.
func Sentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	port := FreePort(t)
	s := &Server{Addr: "127.0.0.1:" + port, t: t, dir: t.TempDir()}
	_, masterPort, _ := net.SplitHostPort(master.Addr)
	file := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor mymaster 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds mymaster 3000\nsentinel failover-timeout mymaster 10000\n", port, s.dir, masterPort)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"redis-server", file, "--sentinel"}
	s.begin()
	return s
}

// leashed is a shell's program that runs another until standard input ends, as it does when the
// test has ended, however.
const leashed = `"$@" & pid=$!; echo $pid; read -r _; kill -9 $pid 2>/dev/null; wait $pid`

// begin starts the program, and has it end with the test.
func (s *Server) begin() {
	s.t.Helper()
	if _, err := exec.LookPath(s.args[0]); err != nil {
		s.t.Fatalf("%v; `make sdks` installs it", err)
	}
	s.calls, s.results = make(chan func() error), make(chan error)
	go func() {
		for f := range s.calls {
			s.results <- f()
		}
	}()
	s.t.Cleanup(func() {
		s.Kill()
		close(s.calls)
	})
	s.Restart()
}

// Restart starts a server again that was killed, with what it has on disk, and returns when it
// serves.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.outside(s.restart); err != nil {
		s.t.Fatal(err)
	}
}

// outside has f done outside of any bubble.
func (s *Server) outside(f func() error) error {
	s.calls <- f
	return <-s.results
}

func (s *Server) restart() error {
	cmd := exec.Command("sh", append([]string{"-c", leashed, "sh"}, s.args...)...)
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return fmt.Errorf("%s did not start", s.args[0])
	}
	if _, err := fmt.Sscan(lines.Text(), &s.pid); err != nil {
		return err
	}
	s.leash, s.done = leash, make(chan struct{})
	done := s.done
	go func() {
		defer close(done)
		for lines.Scan() { // or it would wait to be read
			continue
		}
		_ = cmd.Wait() // of a signal, mostly
	}()
	return s.ready()
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	_ = s.outside(func() error {
		if s.leash != nil {
			_ = s.leash.Close() // which fails when it has been closed before
			<-s.done
		}
		return nil
	})
}

// Freeze stops the server where it is: its connections stay, and nothing answers. Thaw lets it go
// on.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw is described at Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends a command and returns the answer as it comes, up to 64 KiB.
func (s *Server) Do(command ...string) (answer string, err error) {
	nc, err := net.DialTimeout("tcp", s.Addr, timeout)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, nc.Close()) }()
	if err := nc.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, part := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(part), part)
	}
	if _, err := io.WriteString(nc, b.String()); err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	n, err := nc.Read(buf)
	return string(buf[:n]), err
}

// Must is Do that has to succeed.
func (s *Server) Must(command ...string) string {
	s.t.Helper()
	answer, err := s.Do(command...)
	if err != nil || strings.HasPrefix(answer, "-") {
		s.t.Fatalf("%v: %q, %v", command, answer, err)
	}
	return answer
}

// ready waits until the server answers.
func (s *Server) ready() error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		answer, err := s.Do("PING")
		if strings.HasPrefix(answer, "+PONG") || strings.HasPrefix(answer, "-NOAUTH") {
			return nil
		}
		if err == nil {
			err = errors.New(strings.TrimSpace(answer))
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("%s does not serve after %v: %w\n%s", s.args[0], timeout, err, said)
		}
	}
}
