// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
)

// Queues of the broker that is measured. A queue of any other name is plain.
const (
	plainQueue     = "plain"
	duplicateQueue = "duplicates" // duplicate detection is on
	ruledTopic     = "ruled"      // one subscription with 100 rules, none of which but the last matches
	ruledSub       = "s"
	rules          = 100
)

// sessionQueues require sessions; few and many are put into them.
var sessionQueues = [2]string{"sessions-few", "sessions-many"}

const manySessions = 10_000

const longest = 5 * time.Minute // lock duration

// serveBroker is the process that is measured: a broker behind its endpoint. It says on stdout
// where the endpoint and the control port listen, and ends with its standard input.
func serveBroker(ctx context.Context) error {
	b, err := broker.New(broker.Config{
		AutoCreate:       true,
		AutoCreateConfig: broker.QueueConfig{LockDuration: longest},
		MaxMessageSize:   1 << 20, // as of a Premium namespace, so that batches are as large as there
	})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := populate(b.Default()); err != nil {
		return err
	}
	endpoint := httpapi.New(httpapi.Config{Broker: b, ErrorLog: complain})
	defer endpoint.Close()
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	go func() { _ = endpoint.Serve(listeners[0]) }() // ends with Close
	control := &http.Server{Handler: controls(b.Default()), ReadHeaderTimeout: time.Second}
	go func() { _ = control.Serve(listeners[1]) }() // so does this
	defer control.Close()
	fmt.Println(listeners[0].Addr(), listeners[1].Addr())
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone, however
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// populate makes the entities.
func populate(n *broker.Namespace) error {
	for _, name := range sessionQueues {
		if _, err := n.CreateQueue(broker.QueueConfig{Name: name, LockDuration: longest, RequiresSession: true}); err != nil {
			return err
		}
	}
	_, err := n.CreateQueue(broker.QueueConfig{Name: duplicateQueue, LockDuration: longest, RequiresDuplicateDetection: true})
	if err != nil {
		return err
	}
	if _, err := n.CreateTopic(broker.TopicConfig{Name: ruledTopic}); err != nil {
		return err
	}
	rs := make([]broker.RuleConfig, rules)
	for i := range rs {
		rs[i] = broker.RuleConfig{Name: fmt.Sprint("r", i), Filter: broker.Filter{SQL: &broker.SQLFilter{
			Expression: fmt.Sprintf("kind = 'k%d' AND quantity > 5", rules-1-i),
		}}}
	}
	_, err = n.CreateSubscription(ruledTopic, broker.SubscriptionConfig{Name: ruledSub, LockDuration: longest}, rs...)
	return err
}

// controls serves the parent's requests outside the protocol.
func controls(n *broker.Namespace) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		n.Reset()
		err := populate(n)
		if err != nil && !errors.Is(err, broker.ErrEntityExists) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		runtime.GC()
	})
	mux.HandleFunc("/heap", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		runtime.GC() // the first call only starts the reclaim
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintln(w, m.HeapAlloc)
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return mux
}

// complain says why a connection ended, unless the client just went, as a pump does.
func complain(err error) {
	if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "hung up") {
		fmt.Fprintln(os.Stderr, err)
	}
}
