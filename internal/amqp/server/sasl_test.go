// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
)

func TestWrongCredentialsEndTheConnectionWithTheOutcome(t *testing.T) {
	for password, want := range map[string]bool{"right": true, "wrong": false, "": false} {
		t.Run("password "+password, func(t *testing.T) {
			sc := setup(t, func(cfg *Config) {
				cfg.Authenticate = func(mechanism amqp.Symbol, response []byte) bool {
					return mechanism != "PLAIN" || string(response) == "\x00root\x00right"
				}
			})
			conn, err := goamqp.NewConn(context.Background(), sc.pipe(), &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain("root", password)})
			if got := err == nil; got != want {
				t.Fatalf("NewConn = %v, want success: %v", err, want)
			}
			if conn != nil {
				conn.Close() // what it says does not matter here
				return
			}
			if err := <-sc.errs; !errors.Is(err, errCredentials) {
				t.Errorf("ServeConn = %v, want errCredentials", err)
			}
		})
	}
}
