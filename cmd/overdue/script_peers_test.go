// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/rogpeppe/go-internal/testscript"

	"overdue/internal/config"
)

// A hook is a webhook that remembers the events that it got.
type hook struct {
	mu     sync.Mutex
	events []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodPost {
		return // a check, without an event
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, string(body))
}

// hook NAME: starts a webhook and puts its URL into the variable.
func scriptHook(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(ts.Value("hook").(*hook))
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL+"/hook")
}

// notified N [PATTERN]: waits until the webhook has N events, of those that match, and prints all.
func scriptNotified(ts *testscript.TestScript, _ bool, args []string) {
	h := ts.Value("hook").(*hook)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	pattern, err := regexp.Compile(strings.Join(args[1:], ""))
	ts.Check(err)
	var all bytes.Buffer
	await(ts, strings.Join(args, " events with "), func() (bool, string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		all.Reset()
		matching := 0
		for _, event := range h.events {
			all.WriteString(event + "\n")
			if pattern.MatchString(event) {
				matching++
			}
		}
		return matching >= want, all.String()
	})
	_, err = all.WriteTo(ts.Stdout())
	ts.Check(err)
}

// deadletter ADDR QUEUE: receives one message from the dead-letter queue with the SDK and
// prints its id and reason.
func scriptDeadLetter(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(config.ConnectionString(args[0], config.AnyKeyName, config.AnyKey), nil)
	ts.Check(err)
	defer func() { ts.Check(client.Close(ctx)) }()
	r, err := client.NewReceiverForQueue(args[1], &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	ts.Check(err)
	ms, err := r.ReceiveMessages(ctx, 1, nil)
	ts.Check(err)
	ts.Check(r.CompleteMessage(ctx, ms[0], nil))
	_, err = fmt.Fprintf(ts.Stdout(), "%s %s %s\n", ms[0].MessageID, *ms[0].DeadLetterReason, ms[0].Body)
	ts.Check(err)
}

// send ADDR QUEUE ID: sends one message without a time to live with the SDK.
func scriptSend(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(config.ConnectionString(args[0], config.AnyKeyName, config.AnyKey), nil)
	ts.Check(err)
	defer func() { ts.Check(client.Close(ctx)) }()
	s, err := client.NewSender(args[1], nil)
	ts.Check(err)
	ts.Check(s.SendMessage(ctx, &azservicebus.Message{MessageID: &args[2], Body: []byte("hello")}, nil))
}

// A connectedApp is an app that stays connected between its sends.
type connectedApp struct {
	client *azservicebus.Client
	sender *azservicebus.Sender
}

// app connect ADDR QUEUE: connects an app with the SDK. app send ID: it sends a message with a time to live of a
// second, over the connection that it has. app close: it ends.
func scriptApp(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	a := ts.Value("app").(*connectedApp)
	var err error
	switch {
	case len(args) == 3 && args[0] == "connect":
		// Without retries: what cannot be sent over this connection is not sent over the next one.
		a.client, err = azservicebus.NewClientFromConnectionString(config.ConnectionString(args[1], config.AnyKeyName, config.AnyKey),
			&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
		ts.Check(err)
		client := a.client
		ts.Defer(func() { _ = client.Close(context.Background()) }) // a script that has closed it has checked that
		a.sender, err = a.client.NewSender(args[2], nil)
		ts.Check(err)
		// The SDK connects with the first use.
		_, err = a.sender.NewMessageBatch(ctx, nil)
	case len(args) == 2 && args[0] == "send":
		ttl := time.Second
		err = a.sender.SendMessage(ctx, &azservicebus.Message{MessageID: &args[1], Body: []byte("hello"), TimeToLive: &ttl}, nil)
	case len(args) == 1 && args[0] == "close":
		err = a.client.Close(ctx)
	default:
		ts.Fatalf("usage: app connect address queue | send id | close")
	}
	if neg != (err != nil) {
		ts.Fatalf("app %s: %v", args[0], err)
	}
}

// tlsfront ADDR TARGET NAME: does TLS on ADDR for the plain TARGET, as a namespace does.
// Puts the address into the variable and the certificate into ca.pem.
func scriptTLSFront(ts *testscript.TestScript, _ bool, args []string) {
	// The certificate of httptest is for 127.0.0.1.
	s := httptest.NewTLSServer(nil)
	s.Close()
	pemBytes := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), pemBytes, 0o600))
	ln, err := tls.Listen("tcp", args[0], &tls.Config{Certificates: s.TLS.Certificates})
	ts.Check(err)
	ts.Defer(func() { _ = ln.Close() })
	ts.Setenv(args[2], ln.Addr().String())
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			go forward(c, args[1])
		}
	}()
}

// forward copies both ways until one side ends.
func forward(c net.Conn, target string) {
	defer c.Close()
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	ended := make(chan struct{}, 2)
	pipe := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src) // that it ends is all there is to know
		ended <- struct{}{}
	}
	go pipe(up, c)
	go pipe(c, up)
	<-ended
}

// identity NAME: gives out tokens as the managed identity endpoint of a machine does.
func scriptIdentity(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"s3cr3t","expires_on":"%d","resource":%q,"token_type":"Bearer"}`,
			time.Now().Add(time.Hour).Unix(), r.URL.Query().Get("resource")) // who hangs up gets no token
	}))
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL+"/token")
}
