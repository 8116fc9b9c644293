// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// root is the folder of the repository.
const root = "../../.."

// measureOverdue runs `overdue bench expire`, which measures by itself. A second row has how late
// the messages were dead letters.
func (p *plan) measureOverdue(ctx context.Context, one peer, dir string) ([]outcome, error) {
	binary, version, err := buildOverdue(ctx, dir)
	if err != nil {
		return nil, err
	}
	bench := exec.CommandContext(ctx, binary, "bench", "expire", "--json", "--mixed=false", "--drained=false",
		"--outstanding", strconv.Itoa(p.n), "--deadline-range", fmt.Sprintf("%s-%s", p.shortest, p.longest))
	bench.Stderr = os.Stderr
	text, err := bench.Output()
	if err != nil {
		return nil, fmt.Errorf("overdue bench expire: %w", err)
	}
	var r struct {
		Cases []struct {
			LoadMs                                          float64
			LoadedBeforeFirstDue                            bool
			Early, Twice, Lost, Unnotified, FalselyNotified int
			LagMs, NotifiedLagMs                            *percentiles
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read what overdue bench expire prints: %w", err)
	}
	if len(r.Cases) != 1 || r.Cases[0].LagMs == nil || r.Cases[0].NotifiedLagMs == nil {
		return nil, errors.New("overdue bench expire prints no case with a lag of notifications")
	}
	c := r.Cases[0]
	notified := outcome{Name: one.name, How: one.how, Version: version, LagMs: *c.NotifiedLagMs,
		Early: c.Early, Twice: c.Twice, Lost: c.Lost + c.Unnotified,
		LoadMs: c.LoadMs, LoadedBeforeFirstDue: c.LoadedBeforeFirstDue}
	dead := notified
	dead.Name, dead.How, dead.LagMs = one.name+"-dead-letter", "the same, until the message is dead-lettered", *c.LagMs
	dead.Lost = c.Lost
	return []outcome{notified, dead}, nil
}

// buildOverdue builds this checkout into dir.
func buildOverdue(ctx context.Context, dir string) (binary, version string, err error) {
	version = "devel"
	if text, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--dirty", "--always").Output(); err == nil {
		version = strings.TrimSpace(string(text))
	}
	binary = filepath.Join(dir, "overdue")
	build := exec.CommandContext(ctx, "go", "build", "-C", root, "-trimpath", "-ldflags",
		"-s -w -X overdue/internal/version.release="+version, "-o", binary, "./cmd/overdue")
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build overdue: %w: %s", err, tail(string(out)))
	}
	return binary, "Overdue " + version, nil
}

// An overdueBuild is a binary, or this checkout, which is built once.
type overdueBuild struct {
	dir     string // of what is built
	binary  string // "": not built yet
	version string // "": not known yet
	built   bool
}

func (o *overdueBuild) prepare(ctx context.Context) (err error) {
	switch {
	case o.version != "":
	case o.binary == "":
		o.binary, o.version, err = buildOverdue(ctx, o.dir)
		o.built = err == nil
	default:
		var text []byte
		if text, err = exec.CommandContext(ctx, o.binary, "--version").Output(); err != nil {
			return fmt.Errorf("%s: %w", o.binary, err)
		}
		o.version = strings.TrimSpace(string(text))
	}
	return err
}

func (o *overdueBuild) remove() error {
	if !o.built {
		return nil
	}
	return os.Remove(o.binary)
}

func startDurableOverdue(ctx context.Context, o *overdueBuild, dir string) (*runningBroker, error) {
	return startOverdue(ctx, o, "OVERDUE_BROKER_DIRECTORY="+filepath.Join(dir, "broker"))
}

func startOverdueInMemory(ctx context.Context, o *overdueBuild, _ string) (*runningBroker, error) {
	return startOverdue(ctx, o)
}

// startOverdue starts its embedded broker. Senders of the Go SDK share a connection.
func startOverdue(ctx context.Context, o *overdueBuild, settings ...string) (*runningBroker, error) {
	if err := o.prepare(ctx); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + port
	settings = append(settings, "OVERDUE_BROKER_LISTEN="+addr, "OVERDUE_LISTEN_ADMIN=127.0.0.1:0", "OVERDUE_LOG_LEVEL=warn",
		"OVERDUE_BROKER_QUEUES=[{name: sends}]")
	stop, err := command{args: []string{o.binary, "broker"}, env: append(os.Environ(), settings...), addr: addr}.start(ctx)
	if err != nil {
		return nil, err
	}
	client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://"+addr+
		";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;", nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a client: %w", err), stop())
	}
	return &runningBroker{
		version: o.version,
		stop: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			return errors.Join(client.Close(ctx), stop())
		},
		open: func(_ context.Context, messages int) (func(context.Context) error, error) {
			sender, err := client.NewSender("sends", nil)
			if err != nil {
				return nil, err
			}
			m := &azservicebus.Message{Body: payload(0)}
			if messages == 1 {
				return func(ctx context.Context) error { return sender.SendMessage(ctx, m, nil) }, nil
			}
			return func(ctx context.Context) error {
				batch, err := sender.NewMessageBatch(ctx, nil)
				for i := 0; i < messages && err == nil; i++ {
					err = batch.AddMessage(m, nil)
				}
				if err != nil {
					return err
				}
				return sender.SendMessageBatch(ctx, batch, nil)
			}, nil
		},
	}, nil
}
