// SPDX-License-Identifier: Apache-2.0

// Package apptest has clients as tests play them: apps that stay connected, and a reader of answers.
package apptest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// Apps are connected until Gone is closed.
type Apps struct {
	Gone   chan struct{}
	N      atomic.Int64
	Closed atomic.Bool // no more connections are accepted
}

// Connected returns n apps.
func Connected(n int64) *Apps {
	a := &Apps{Gone: make(chan struct{})}
	a.N.Store(n)
	return a
}

// Connections returns how many there are.
func (a *Apps) Connections() int { return int(a.N.Load()) }

// Drain accepts no more connections, and waits for Gone.
func (a *Apps) Drain(ctx context.Context) error {
	a.Closed.Store(true)
	select {
	case <-a.Gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Answered reads the answers to a request up to the final one, and returns its status and its body.
func Answered(in *bufio.Reader) (status int, body string, err error) {
	for status < http.StatusOK {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0, "", err
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, "", err
		}
		status, body = resp.StatusCode, string(text)
	}
	return status, body, nil
}
