// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// stopTimeout bounds the stop of a process, whose own timeouts are shorter.
const stopTimeout = 40 * time.Second

// A process is a program that this one has started. It ends when its standard input ends, which
// follows every end of this process.
type process struct {
	cmd   *exec.Cmd
	name  string
	stdin io.Closer
	gone  chan struct{} // closed when the process has ended and its output was read
	err   error         // of its end; read it after gone

	mu  sync.Mutex
	log []byte // the beginning of its messages
}

// start starts a command. Its output goes to stdout and stderr line by line.
func (p *process) start(name string, cmd *exec.Cmd, stdout, stderr func(line []byte)) error {
	p.name, p.cmd, p.gone = name, cmd, make(chan struct{})
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.stdin = stdin
	cmd.Stdout, cmd.Stderr = &lineWriter{use: stdout}, &lineWriter{use: stderr}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", name, err), stdin.Close())
	}
	go func() {
		p.err = cmd.Wait()
		close(p.gone)
	}()
	return nil
}

// overdueCommand is a command of the measured program.
func overdueCommand(p *Program, args ...string) *exec.Cmd {
	cmd := exec.Command(p.Binary, args...)
	cmd.Args[0] = "overdue" // the test binary has another name
	return cmd
}

// stop ends the process and waits until it has.
func (p *process) stop() error {
	closeErr := p.stdin.Close()
	stuck := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() }) // its end reports it
	defer stuck.Stop()
	<-p.gone
	if p.err != nil {
		return errors.Join(fmt.Errorf("the measured %s: %w", p.name, p.err), p.complaint())
	}
	if closeErr != nil {
		return fmt.Errorf("stop the measured %s: %w", p.name, closeErr)
	}
	return nil
}

// maxComplaint bounds the part of a log that an error quotes, in bytes.
const maxComplaint = 2 << 10

func (p *process) keepLine(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.log) < maxComplaint {
		p.log = append(append(p.log, line[:min(len(line), maxComplaint)]...), '\n')
	}
}

// complaint returns the log as an error, or nil if there is none.
func (p *process) complaint() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.log) == 0 {
		return nil
	}
	return fmt.Errorf("log of %s: %s", p.name, bytes.TrimSpace(p.log))
}

// processStat returns what the system reports of a process; false if it reports nothing. Unlike a
// request for its metrics, that costs the process nothing.
func processStat(pid int) (procfs.ProcStat, bool) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, false
	}
	stat, err := proc.Stat()
	return stat, err == nil
}

// processCPU returns the processor time of a process in seconds, or 0 if the system does not report
// it.
func processCPU(pid int) float64 {
	if stat, ok := processStat(pid); ok {
		return stat.CPUTime()
	}
	return 0
}

// A lineWriter passes on what is written, line by line.
type lineWriter struct {
	use  func(line []byte)
	rest []byte // a line without its end
}

// Write never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, ended := bytes.Cut(w.rest, []byte("\n"))
		if !ended {
			return len(p), nil
		}
		w.use(line)
		w.rest = rest
	}
}
