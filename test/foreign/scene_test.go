// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp/relay"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/program"
	"overdue/internal/testing/wiretap"
)

// caseTimeout bounds one case, one way.
const caseTimeout = 5 * time.Minute

// The ways to a broker. Their names are part of the queues' names, so that neither finds
// what the other has left, and are of one length, so that messages are.
const (
	direct = "direct"
	behind = "behind" // the relay
)

// A visit is one way to a broker, with what a client did there. Its failures are kept, and are the
// test's only when the broker itself did not fail.
type visit struct {
	ctx      context.Context
	broker   *broker
	way      string
	round    int    // of compare
	addr     string // where clients connect to
	tap      *wiretap.Tap
	frame    uint32 // max-frame-size of go-amqp; 0 = its default. It takes 512 for none
	notes    []string
	failures []string
}

// queue is the address of a queue of this visit.
func (v *visit) queue(name string) string {
	return v.broker.queue(fmt.Sprintf("%s-%d-%s", name, v.round, v.way))
}

// Errorf keeps a failure.
func (v *visit) Errorf(format string, args ...any) {
	v.failures = append(v.failures, v.way+": "+fmt.Sprintf(format, args...))
}

// Fatalf keeps a failure and ends the visit. Only the visit's own goroutine may call it.
func (v *visit) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}

// note keeps what both ways have to have in common.
func (v *visit) note(format string, args ...any) {
	v.notes = append(v.notes, strings.ReplaceAll(fmt.Sprintf(format, args...), v.way, "WAY"))
}

func (v *visit) must(err error) {
	if err != nil {
		_, _, line, _ := runtime.Caller(1)
		v.Fatalf("line %d: unexpected error: %v", line, err)
	}
}

// connect opens a connection that closes with the visit.
func (v *visit) connect() *goamqp.Conn {
	conn, err := goamqp.Dial(v.ctx, "amqp://"+v.addr, &goamqp.ConnOptions{SASLType: v.broker.sasl, MaxFrameSize: v.frame})
	v.must(err)
	return conn
}

func (v *visit) session(conn *goamqp.Conn) *goamqp.Session {
	s, err := conn.NewSession(v.ctx, nil)
	v.must(err)
	return s
}

// leave closes a connection when all that came over it has been settled, and that is on the wire.
// To end the session first would say as much, but RabbitMQ does not always answer that.
func (v *visit) leave(conn *goamqp.Conn) {
	for open := true; open; {
		open = slices.ContainsFunc(v.tap.Deliveries(), func(d wiretap.Delivery) bool { return !d.FromClient && !d.Done })
		select {
		case <-v.ctx.Done():
			v.Fatalf("some of what came is not settled")
		case <-time.After(time.Millisecond):
		}
	}
	v.must(conn.Close())
}

func (v *visit) sender(s *goamqp.Session, address string, options *goamqp.SenderOptions) *goamqp.Sender {
	link, err := s.NewSender(v.ctx, address, options)
	v.must(err)
	return link
}

func (v *visit) receiver(s *goamqp.Session, address string, options *goamqp.ReceiverOptions) *goamqp.Receiver {
	link, err := s.NewReceiver(v.ctx, address, options)
	v.must(err)
	return link
}

func (v *visit) receive(r *goamqp.Receiver) *goamqp.Message {
	m, err := r.Receive(v.ctx, nil)
	v.must(err)
	return m
}

// An endpoint starts what stands before the broker at an address, and returns where it listens. It
// ends with the test.
type endpoint func(t *testing.T, to string) (addr string)

// brokerAttempts bounds how often compare starts again because the broker failed.
const brokerAttempts = 4

// compare visits a broker directly and through a relay. Clients have to see the same, and what goes
// into the relay on one side has to come out of it on the other.
//
// RabbitMQ 3.10 sometimes breaks a connection off on a loaded machine, with a relay or without one.
// A comparison that failed while the broker did that proves nothing, and is repeated.
func compare(t *testing.T, b *broker, through endpoint, visits func(*visit)) {
	t.Helper()
	for round := 1; ; round++ {
		differences, brokerFailed := compareOnce(t, b, through, visits, round)
		if len(differences) == 0 {
			return
		}
		if !brokerFailed || round == brokerAttempts {
			t.Errorf("attempt %d:\n%s", round, strings.Join(differences, "\n"))
			return
		}
		t.Logf("attempt %d: the broker broke a connection off; starting again after\n%.2000s", round, strings.Join(differences, "\n"))
	}
}

func compareOnce(t *testing.T, b *broker, through endpoint, visits func(*visit), round int) (differences []string, brokerFailed bool) {
	t.Helper()
	once := func(way string, tap *wiretap.Tap) *visit {
		ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
		defer cancel()
		v := &visit{ctx: ctx, broker: b, way: way, round: round, addr: tap.Addr, tap: tap}
		done := make(chan struct{})
		go func() {
			defer close(done) // Fatalf ends this goroutine
			visits(v)
		}()
		<-done
		return v
	}
	tap := wiretap.Start(t, b.addr)
	plain := once(direct, tap)

	upstream := wiretap.Start(t, b.addr)
	front := wiretap.Start(t, through(t, upstream.Addr))
	relayed := once(behind, front)

	differences = append(plain.failures, relayed.failures...)
	if diff := cmp.Diff(plain.notes, relayed.notes); diff != "" {
		differences = append(differences, "what the client saw (-directly +behind the relay):\n"+diff)
	}
	if len(front.Deliveries()) == 0 && len(plain.notes) == 0 {
		differences = append(differences, "nothing happened")
	}
	timeout := time.Minute
	if len(differences) > 0 { // and no frame that is under way changes that
		timeout = 0
	}
	if diff := difference(timeout, front.Deliveries, upstream.Deliveries); diff != "" {
		differences = append(differences, "what is on the wire (-before the relay +behind it): "+diff)
	}
	if diff := difference(timeout,
		func() []wiretap.Delivery { return anonymous(tap.Deliveries(), direct) },
		func() []wiretap.Delivery { return anonymous(front.Deliveries(), behind) },
	); diff != "" {
		differences = append(differences, "what is on the wire of the client (-directly +behind the relay): "+diff)
	}
	return differences, tap.Failures()+upstream.Failures() > 0
}

// anonymous is what two visits have in common: neither the names of links, nor tags, nor the names
// of queues, which RabbitMQ notes in messages, too.
func anonymous(all []wiretap.Delivery, way string) []wiretap.Delivery {
	for i := range all {
		d := &all[i]
		d.Link, d.Tag = "", nil
		d.Payload = bytes.ReplaceAll(d.Payload, []byte(way), []byte("WAYWAY"))
		if d.Address = strings.ReplaceAll(d.Address, way, "WAY"); !strings.Contains(d.Address, "WAY") {
			d.Address = "" // made by the broker
		}
	}
	return all
}

// difference compares what two taps have. It waits for frames that are under way, until the timeout.
func difference(timeout time.Duration, a, b func() []wiretap.Delivery) string {
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		if diff := wiretap.Difference(a(), b()); diff == "" || time.Now().After(deadline) {
			return diff
		}
	}
}

// alone is the relay by itself, as it is configured.
func alone(configure ...func(*relay.Config)) endpoint {
	return func(t *testing.T, to string) string { return serve(t, to, configure) }
}

// serve starts a relay that ends with the test, and returns where.
func serve(t *testing.T, to string, configure []func(*relay.Config)) (addr string) {
	t.Helper()
	cfg := relay.Config{
		// The client's credentials are what the broker wants, and there is no $cbs.
		Dial:     func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) },
		ErrorLog: func(err error) { t.Logf("the relay: %v", err) },
	}
	for _, f := range configure {
		f(&cfg)
	}
	r := relay.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Serve(ln) }()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing the relay: %v", err)
		}
		if err := <-done; !errors.Is(err, relay.ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return ln.Addr().String()
}

// built is `overdue proxy`, built, which passes on who the client is and monitors a queue of
// another name. It needs nothing of the namespace but AMQP for that.
func built(t *testing.T) endpoint {
	t.Helper()
	binary, config := program.Build(t), filepath.Join(t.TempDir(), "overdue.yaml")
	const text = "proxy: {credentials: client}\nmonitor: {entities: [{queue: another}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, to string) string {
		addr := freeport.Address(t)
		start(t, os.Environ(), addr, binary, "proxy", "--config", config,
			"--namespace", "Endpoint=sb://"+to+";SharedAccessKeyName=any;SharedAccessKey=YW55;UseDevelopmentEmulator=true",
			"--listen-amqp", addr, "--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0")
		return addr
	}
}
