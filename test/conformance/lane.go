// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
)

// maxLanes keeps the addresses of the last lane inside 127.0.0.0/24, with two ways.
const maxLanes = 40

// runLive runs the live tests of a prepared folder in lanes and reports.
func runLive(ctx context.Context, opt options, dir string, out io.Writer) error {
	all, err := readPlan(dir)
	if err != nil {
		return err
	}
	var tests []liveTest
	for _, t := range all {
		if opt.run.MatchString(t.Name) {
			tests = append(tests, t)
		}
	}
	if len(tests) == 0 {
		return fmt.Errorf("-run %s matches none of the %d live tests", opt.run, len(all))
	}
	tokens, err := serveTokens()
	if err != nil {
		return err
	}
	defer tokens.Close()

	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	rep := newReport(out, opt, len(all) == len(tests))
	g, ctx := errgroup.WithContext(ctx)
	for i, w := range opt.ways {
		queue := make(chan liveTest, len(tests))
		for _, t := range tests {
			queue <- t
		}
		close(queue)
		for j := range min(opt.lanes, len(tests)) {
			g.Go(func() error { return runLane(ctx, w, i*opt.lanes+j, dir, tokens.URL, queue, rep) })
		}
	}
	return rep.close(g.Wait())
}

// runLane starts the two namespaces of a lane and runs tests on them, one after the other, until
// none is left. A broker that does not end well is an error. Lanes share nothing: the SDK's tests
// draw names of queues from the seconds of the clock and would meet on one namespace.
func runLane(ctx context.Context, w way, lane int, dir, tokens string, queue <-chan liveTest, rep *report) (err error) {
	laneDir := filepath.Join(dir, fmt.Sprintf("lane-%d", lane))
	if err := os.Mkdir(laneDir, 0o700); err != nil {
		return err
	}
	far := laneAddr(lane, 2)
	standard, err := startNamespace(ctx, w, dir, laneDir, laneAddr(lane, 0), tierStandard, far.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, standard.stop()) }()
	premium, err := startNamespace(ctx, w, dir, laneDir, laneAddr(lane, 1), tierPremium)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, premium.stop()) }()
	way, err := newDistance(far, standard.addr)
	if err != nil {
		return err
	}
	defer way.close()
	env, err := environment(laneDir, tokens, standard, premium)
	if err != nil {
		return err
	}
	for t := range queue {
		testEnv := env
		if distant[t.String()] != "" {
			testEnv = append(slices.Clone(env), envEndpoint+far.String()) // the last of a name counts
		}
		results, output, err := execute(ctx, dir, t.Package, testEnv, "-test.run", t.pattern())
		if ctx.Err() != nil {
			return fmt.Errorf("stopped in %s: %w", t, context.Cause(ctx))
		}
		if err != nil {
			results = append(results, result{Package: t.Package, Name: t.Name, Outcome: failed, Output: fmt.Sprintf("%v\n%s", err, output)})
		}
		rep.add(w, results)
	}
	if w != wayRelay {
		return nil
	}
	for _, n := range []*namespace{standard, premium} {
		t, err := n.relayed(ctx)
		if err != nil {
			return err
		}
		rep.relayed(t)
	}
	return nil
}

// envEndpoint is where the tests find the host of the standard namespace.
const envEndpoint = "SERVICEBUS_ENDPOINT="

// laneAddr returns the i-th address of loopback of a lane, from 127.0.0.2 on.
func laneAddr(lane, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + 3*lane + i)})
}

// environment is the environment of the tests of one lane. It has nothing of ours but the way to
// the Go toolchain's caches, so that a developer's Azure account stays out of the game.
func environment(dir, tokens string, standard, premium *namespace) ([]string, error) {
	bundle := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(bundle, append(standard.certificate, premium.certificate...), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env := []string{
		"AMQP_FAULT_INJECTOR_PATH=" + self,
		"AZURE_RECORD_MODE=live",
		"AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential",
		"IDENTITY_ENDPOINT=" + tokens,
		"IDENTITY_HEADER=x",
		"SSL_CERT_FILE=" + bundle,
		"SSL_CERT_DIR=" + filepath.Join(dir, "no-other-certificates"),
		envEndpoint + standard.addr.String(),
		"SERVICEBUS_ENDPOINT_PREMIUM=" + premium.addr.String(),
		"SERVICEBUS_CONNECTION_STRING=" + standard.connectionString(keyRoot),
		"SERVICEBUS_CONNECTION_STRING_PREMIUM=" + premium.connectionString(keyRoot),
		"SERVICEBUS_CONNECTION_STRING_NO_MANAGE=" + standard.connectionString(keyNoManage),
		"SERVICEBUS_CONNECTION_STRING_SEND_ONLY=" + standard.connectionString(keySendOnly),
		"SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY=" + standard.connectionString(keyListenOnly),
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS", "GOPROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env, nil
}

// canBind says whether this process may listen where the first namespace will.
func canBind() error {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(laneAddr(0, 0), portHTTPS).String())
	if err != nil {
		return err
	}
	return ln.Close()
}
