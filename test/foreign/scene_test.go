// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp/relay"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/wiretap"
)

// casePatience bounds one case, one way.
const casePatience = 20 * time.Second

// The ways to a broker. Their names are part of the queues' names, so that neither finds
// what the other has left, and are of one length, so that messages are.
const (
	direct = "direct"
	behind = "behind" // the relay
)

// A visit is one way to a broker, with what a client did there.
type visit struct {
	*testing.T
	ctx    context.Context
	broker *broker
	way    string
	addr   string // where clients connect to
	tap    *wiretap.Tap
	frame  uint32 // max-frame-size of go-amqp; 0 = its default. It takes 512 for none
	notes  []string
}

// queue is the address of a queue of this visit.
func (v *visit) queue(name string) string { return v.broker.queue(name + "-" + v.way) }

// note keeps what both ways have to have in common.
func (v *visit) note(format string, args ...any) {
	v.notes = append(v.notes, strings.ReplaceAll(fmt.Sprintf(format, args...), v.way, "WAY"))
}

func (v *visit) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatalf("%s: unexpected error: %v", v.way, err)
	}
}

// connect opens a connection that closes with the visit.
func (v *visit) connect() *goamqp.Conn {
	v.Helper()
	conn, err := goamqp.Dial(v.ctx, "amqp://"+v.addr, &goamqp.ConnOptions{SASLType: v.broker.sasl, MaxFrameSize: v.frame})
	v.must(err)
	return conn
}

func (v *visit) session(conn *goamqp.Conn) *goamqp.Session {
	v.Helper()
	s, err := conn.NewSession(v.ctx, nil)
	v.must(err)
	return s
}

// leave closes a connection when all that came over it has been settled, and that is on the wire. To end the
// session first would say as much, but RabbitMQ does not always answer that.
func (v *visit) leave(conn *goamqp.Conn) {
	v.Helper()
	for open := true; open; {
		open = slices.ContainsFunc(v.tap.Deliveries(), func(d wiretap.Delivery) bool { return !d.FromClient && !d.Done })
		select {
		case <-v.ctx.Done():
			v.Fatalf("%s: some of what came is not settled", v.way)
		case <-time.After(time.Millisecond):
		}
	}
	v.must(conn.Close())
}

func (v *visit) sender(s *goamqp.Session, address string, options *goamqp.SenderOptions) *goamqp.Sender {
	v.Helper()
	link, err := s.NewSender(v.ctx, address, options)
	v.must(err)
	return link
}

func (v *visit) receiver(s *goamqp.Session, address string, options *goamqp.ReceiverOptions) *goamqp.Receiver {
	v.Helper()
	link, err := s.NewReceiver(v.ctx, address, options)
	v.must(err)
	return link
}

func (v *visit) receive(r *goamqp.Receiver) *goamqp.Message {
	v.Helper()
	m, err := r.Receive(v.ctx, nil)
	v.must(err)
	return m
}

// A door starts what stands before the broker at an address, and returns where it listens. It ends with the test.
type door func(t *testing.T, to string) (addr string)

// compare visits a broker directly and through a relay. Clients have to see the same, and what goes
// into the relay on one side has to come out of it on the other.
func compare(t *testing.T, b *broker, through door, visits func(*visit)) {
	t.Helper()
	once := func(way string, tap *wiretap.Tap) *visit {
		ctx, cancel := context.WithTimeout(t.Context(), casePatience)
		defer cancel()
		v := &visit{T: t, ctx: ctx, broker: b, way: way, addr: tap.Addr, tap: tap}
		visits(v)
		return v
	}
	tap := wiretap.Start(t, b.addr)
	plain := once(direct, tap)

	upstream := wiretap.Start(t, b.addr)
	front := wiretap.Start(t, through(t, upstream.Addr))
	relayed := once(behind, front)

	if diff := cmp.Diff(plain.notes, relayed.notes); diff != "" {
		t.Errorf("what the client saw (-directly +behind the relay):\n%s", diff)
	}
	if len(front.Deliveries()) == 0 && len(plain.notes) == 0 {
		t.Error("nothing happened")
	}
	if diff := difference(front.Deliveries, upstream.Deliveries); diff != "" {
		t.Errorf("what is on the wire (-before the relay +behind it): %s", diff)
	}
	if diff := difference(
		func() []wiretap.Delivery { return anonymous(tap.Deliveries(), direct) },
		func() []wiretap.Delivery { return anonymous(front.Deliveries(), behind) },
	); diff != "" {
		t.Errorf("what is on the wire of the client (-directly +behind the relay): %s", diff)
	}
}

// anonymous is what two visits have in common: neither the names of links, nor tags, nor the names of
// queues, which RabbitMQ notes in messages, too.
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

// difference compares what two taps have. It waits a little for frames that are under way.
func difference(a, b func() []wiretap.Delivery) string {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if diff := wiretap.Difference(a(), b()); diff == "" || time.Now().After(deadline) {
			return diff
		}
	}
}

// alone is the relay by itself, as it is configured.
func alone(configure ...func(*relay.Config)) door {
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

// program is `overdue proxy`, built, which passes on who the client is and monitors a queue of another name. It
// needs nothing of the namespace but AMQP for that.
func program(t *testing.T) door {
	t.Helper()
	dir := t.TempDir()
	binary, config := filepath.Join(dir, "overdue"), filepath.Join(dir, "overdue.yaml")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "overdue/cmd/overdue").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
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
