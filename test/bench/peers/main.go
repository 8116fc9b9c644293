// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// A peer holds deadlines and fires at them.
type peer struct {
	name, how string
	// measure hands the deadlines to a peer of its own, which may write to dir, and returns its
	// version when all have fired. It is nil for overdue, which measures itself.
	measure func(ctx context.Context, d *deadlines, dir string) (version string, err error)
}

// peers are all of them, in the order of the table.
var peers = []peer{
	{"timers", "a timer of Go for each deadline, in one process", measureTimers},
	{"overdue", "on its embedded broker, until the event is sent", nil},
	{"redis", "a sorted set in memory, polled every 10 ms", measureSortedSet},
	{"nats-schedules", "JetStream, scheduled messages, in memory", measureNATSSchedules},
	{"river", "jobs in PostgreSQL without fsync, polled every 10 ms", measureRiver},
	{"rabbitmq-ladder", "a ladder of six queues with TTLs from 500 ms on", measureLadder},
	{"nats-ttl", "JetStream, message TTL, in memory: its delete marker", measureNATSTTL},
	{"rabbitmq-ttl", "per-message TTL and dead-lettering", measureMessageTTL},
	{"asynq", "tasks in Redis in memory, polled every 10 ms", measureAsynq},
}

// A plan is what is measured.
type plan struct {
	n                 int
	shortest, longest time.Duration
}

// results are what peers.json holds.
type results struct {
	Outstanding     int       `json:"outstanding"`
	DeadlineRangeMs [2]int64  `json:"deadlineRangeMs"`
	CPUs            int       `json:"cpus"`
	LoadAverage     string    `json:"loadAverage,omitempty"` // of the last minute before
	Peers           []outcome `json:"peers"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var p plan
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	flags.IntVar(&p.n, "n", 100_000, "how many deadlines are outstanding")
	flags.DurationVar(&p.shortest, "shortest", 5*time.Second, "deadlines are spread evenly from this")
	flags.DurationVar(&p.longest, "longest", 15*time.Second, "up to this after each is handed over")
	names := flags.String("peers", strings.Join(namesOf(peers), ","), "the peers to measure")
	file := flags.String("json", "", "also write the results to this file")
	var sends sendPlan
	work := flags.String("work", "deadlines", "deadlines; or sends, of which brokers keep what they acknowledge on disk")
	flags.IntVar(&sends.rounds, "rounds", 7, "sends: how many rounds")
	flags.DurationVar(&sends.span, "span", time.Second, "sends: how long each broker is measured in a round")
	flags.StringVar(&sends.dir, "dir", ".", "sends: where the brokers have their folders, on the disk to measure")
	flags.StringVar(&sends.binary, "overdue", "", "sends: the program; it is built when none is given")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *work == "sends" {
		return runSends(ctx, &sends, *file)
	}
	if p.n < 1 || p.shortest < time.Millisecond || p.longest < p.shortest || flags.NArg() > 0 {
		return errors.New("-n has to be 1 or more, and -longest no less than -shortest; there are no arguments")
	}
	r := &results{
		Outstanding:     p.n,
		DeadlineRangeMs: [2]int64{p.shortest.Milliseconds(), p.longest.Milliseconds()},
		CPUs:            runtime.NumCPU(),
		LoadAverage:     loadAverage(),
	}
	var failed error
	for _, name := range strings.Split(*names, ",") {
		i := slices.Index(namesOf(peers), name)
		if i < 0 {
			return fmt.Errorf("-peers: %q is none of %s", name, strings.Join(namesOf(peers), ", "))
		}
		fmt.Fprintf(os.Stderr, "%s: %d deadlines, the last in %v\n", name, p.n, p.longest)
		o, err := p.measure(ctx, peers[i])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s was not measured: %w", name, err))
			continue
		}
		r.Peers = append(r.Peers, o...)
	}
	if err := r.writeTable(); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	return writeJSON(*file, r)
}

// runSends measures sends.
func runSends(ctx context.Context, p *sendPlan, file string) (err error) {
	if p.rounds < 1 || p.span < slicesPerRound*time.Millisecond {
		return errors.New("-rounds has to be 1 or more, and -span 5ms or more")
	}
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	r, err := p.measure(ctx)
	if err != nil {
		return err
	}
	if err := r.writeTable(); err != nil {
		return err
	}
	return writeJSON(file, r)
}

// writeJSON writes results to a file. "": to none.
func writeJSON(file string, r any) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// loadAverage is that of the last minute, "" if the system does not report it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

func namesOf(peers []peer) (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// measure measures one peer, in a temporary folder that every user may enter.
func (p *plan) measure(ctx context.Context, one peer) (_ []outcome, err error) {
	dir, err := os.MkdirTemp("", "overdue-peers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	runtime.GC() // what the peer before has left
	if one.measure == nil {
		return p.measureOverdue(ctx, one, dir)
	}
	d := newDeadlines(p.n, p.shortest, p.longest)
	version, err := one.measure(ctx, d, dir)
	o := d.outcome()
	o.Name, o.How, o.Version = one.name, one.how, version
	return []outcome{o}, err
}

// writeTable prints a row for each peer.
func (r *results) writeTable() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "peer\tlag p50 ms\tp99\tmax\tearly\tby ms\tlost\ttwice\tload ms\tversion")
	for _, o := range r.Peers {
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%d\t%v\t%d\t%d\t%.0f\t%s\n", o.Name, o.LagMs.P50, o.LagMs.P99, o.LagMs.Max,
			o.Early, o.EarliestMs, o.Lost, o.Twice, o.LoadMs, o.Version)
	}
	return w.Flush()
}

// moduleVersion is the version of a module in this program.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "of an unknown version"
}
