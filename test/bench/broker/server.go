// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// A server is the process that is measured, as its parent sees it.
type server struct {
	cmd     *exec.Cmd
	in      io.Closer // closing it ends the process
	address string    // of the endpoint
	control string    // of its HTTP API, /_overdue/
}

// startServer starts this program once more, as the broker.
func startServer(ctx context.Context) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{cmd: exec.CommandContext(ctx, self, "-serve")}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &s.address, &s.control)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the broker did not say where it listens: %w", err), s.stop())
	}
	return s, nil
}

func (s *server) stop() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }

// ask calls the control port of the process.
func (s *server) ask(path string) (string, error) {
	resp, err := http.Get("http://" + s.control + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return string(answer), err
}

// reset empties all entities.
func (s *server) reset() error {
	_, err := s.ask("/reset")
	return err
}

// heap is what is reachable in the process, in bytes.
func (s *server) heap() (int64, error) {
	answer, err := s.ask("/heap")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(answer), 10, 64)
}

// sdk is a client of the Go SDK.
func (s *server) sdk() (*azservicebus.Client, error) {
	return azservicebus.NewClientFromConnectionString("Endpoint=sb://"+s.address+
		";SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true", nil)
}

// plain is a session of a go-amqp client.
func (s *server) plain(ctx context.Context) (*amqp.Conn, *amqp.Session, error) {
	conn, err := amqp.Dial(ctx, "amqp://"+s.address, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return nil, nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, session, nil
}
