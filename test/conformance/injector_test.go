// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/amqp"
	"overdue/internal/listener"
)

// injectorCommand is the first argument with which a live test starts the program that
// AMQP_FAULT_INJECTOR_PATH names: this one.
const injectorCommand = "transfer_delay"

// injector is a proxy between a client and a namespace that lets the first messages pass
// and holds each of those that follow for a while.
type injector struct {
	host  string        // of the namespace
	after int           // messages that pass unhindered, per connection
	delay time.Duration // before each of the others
}

// runInjector serves until it is killed, which the test does.
func runInjector(ctx context.Context, args []string) error {
	var in injector
	var certDir, logDir, addressFile string
	fs := flag.NewFlagSet(injectorCommand, flag.ContinueOnError)
	fs.IntVar(&in.after, "after", 0, "messages that pass unhindered")
	fs.DurationVar(&in.delay, "delay", 0, "how long to hold each of the others")
	fs.StringVar(&in.host, "host", "", "the namespace")
	fs.StringVar(&addressFile, "address-file", "", "where to write the address that the proxy listens on")
	fs.StringVar(&certDir, "cert", "", "a folder for the certificate")
	fs.StringVar(&logDir, "logs", "", "not used: there is no log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(certDir, "tls-")
	if err != nil {
		return err
	}
	cert, err := listener.SelfMade(dir) // the client of the test takes any
	if err != nil {
		return err
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cert.TLS)
	if err != nil {
		return err
	}
	// The test reads the file as soon as it is there.
	temporary := filepath.Join(filepath.Dir(addressFile), "address.tmp")
	if err := os.WriteFile(temporary, []byte(ln.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, addressFile); err != nil {
		return err
	}
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := in.serve(ctx, client); err != nil {
				fmt.Fprintln(os.Stderr, "fault injector:", err)
			}
		}()
	}
}

// serve carries one connection until either side ends it.
func (in injector) serve(ctx context.Context, client net.Conn) error {
	service, err := new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(in.host, strconv.Itoa(portAMQPS)))
	if err != nil {
		return errors.Join(err, client.Close())
	}
	held := make(chan parcel, 1024) // bounds what a client that does not read costs
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := io.Copy(service, client)
		return errors.Join(err, service.Close())
	})
	g.Go(func() error {
		defer close(held)
		return in.read(ctx, service, held)
	})
	g.Go(func() error {
		for p := range held {
			time.Sleep(time.Until(p.due))
			if _, err := client.Write(p.bytes); err != nil {
				return errors.Join(err, service.Close())
			}
		}
		return client.Close()
	})
	err = g.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A parcel is something that the service said, and when the client may hear it.
type parcel struct {
	bytes []byte
	due   time.Time
}

// read hands on what the service says, frame by frame and in order. Every message but the first
// ones takes longer, each as long as the other: the delay is the distance to the service,
// not the pace.
func (in injector) read(ctx context.Context, service io.Reader, held chan<- parcel) error {
	type link struct {
		channel uint16
		handle  uint32
	}
	messages := map[link]bool{} // links that bring messages, not answers to requests
	count := 0
	frames := amqp.NewFrameReader(service, amqp.DefaultMaxFrameSize)
	for newLayer := true; ; {
		p := parcel{due: time.Now()}
		if newLayer {
			header, err := frames.ReadProto()
			if err != nil {
				return err
			}
			p.bytes, newLayer = header[:], false
		} else {
			frame, err := frames.Next()
			if err != nil {
				return err
			}
			performative, err := decode(frame)
			if err != nil {
				return err
			}
			switch f := performative.(type) {
			case *amqp.SASLOutcome:
				newLayer = true
			case *amqp.Attach:
				messages[link{frame.Channel, f.Handle}] = f.Role == amqp.RoleSender && f.Source != nil && !strings.Contains(f.Source.Address, "$")
			case *amqp.Transfer:
				if messages[link{frame.Channel, f.Handle}] && !f.More {
					count++
					if count > in.after {
						p.due = p.due.Add(in.delay)
					}
				}
			}
			p.bytes = amqp.EndFrame(append(amqp.BeginFrame(nil, frame.Type, frame.Channel), frame.Body...), 0)
		}
		select {
		case held <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decode returns the performative of a frame, nil for a keep-alive.
func decode(frame amqp.Frame) (amqp.Performative, error) {
	if len(frame.Body) == 0 {
		return nil, nil
	}
	p, _, err := amqp.DecodePerformative(frame.Body)
	return p, err
}
