// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// startPostgres starts a server that does not wait for its disk.
func startPostgres(ctx context.Context, dir string) (_ *pgxpool.Pool, version string, stop func() error, err error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(folders) == 0 {
		return nil, "", nil, errors.Join(err, fmt.Errorf("postgres: %w", errMissing))
	}
	bin, data := folders[len(folders)-1], filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, "", nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	as, err := unprivileged(data)
	if err != nil {
		return nil, "", nil, err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "overdue", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	initdb.Dir = data
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, "", nil, fmt.Errorf("initdb: %w: %s", err, tail(string(out)))
	}
	port, err := freePort()
	if err != nil {
		return nil, "", nil, err
	}
	stop, err = command{
		args: []string{filepath.Join(bin, "postgres"), "-D", data, "-p", port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"},
		as: as, addr: "127.0.0.1:" + port,
	}.start(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	pool, err := pgxpool.New(ctx, "postgres://overdue@127.0.0.1:"+port+"/postgres?pool_max_conns=16")
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("connect to PostgreSQL: %w", err), stop())
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := pool.QueryRow(ctx, "SHOW server_version_num").Scan(&version)
		if err == nil {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil { // it listens before it is ready
			pool.Close()
			return nil, "", nil, errors.Join(fmt.Errorf("ask PostgreSQL for its version: %w", err), stop())
		}
	}
	n, err := strconv.Atoi(version) // 150012 is 15.12
	version = fmt.Sprintf("PostgreSQL %d.%d", n/10_000, n%10_000)
	return pool, version, stop, err
}

// unprivileged is the user that owns a folder and runs PostgreSQL, which refuses to run as root.
func unprivileged(folder string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find a user for PostgreSQL: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("find a user for PostgreSQL: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("find a user for PostgreSQL: %w", err)
	}
	if err := os.Chown(folder, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("give a folder to PostgreSQL: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// deadlineArgs are those of a job of river.
type deadlineArgs struct {
	Payload []byte `json:"payload"`
}

// Kind is the name of the job.
func (deadlineArgs) Kind() string { return "deadline" }

// measureRiver inserts a job that is scheduled for each deadline.
func measureRiver(ctx context.Context, d *deadlines, dir string) (version string, err error) {
	pool, version, stop, err := startPostgres(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() {
		pool.Close()
		err = errors.Join(err, stop())
	}()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", fmt.Errorf("make river's tables: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return "", fmt.Errorf("make river's tables: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[deadlineArgs]) error {
		d.fire(indexOf(job.Args.Payload))
		return nil
	}))
	client, err := river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: pollInterval,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}},
	})
	if err != nil {
		return "", fmt.Errorf("make a client of river: %w", err)
	}
	if err := client.Start(ctx); err != nil {
		return "", fmt.Errorf("start river: %w", err)
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, client.StopAndCancel(stopping))
	}()
	err = d.load(ctx, 4, 1000, func(ctx context.Context, _, first, end int) error {
		jobs := make([]river.InsertManyParams, 0, end-first)
		for i := first; i < end; i++ {
			jobs = append(jobs, river.InsertManyParams{Args: deadlineArgs{payload(i)},
				InsertOpts: &river.InsertOpts{ScheduledAt: d.handOver(i)}})
		}
		_, err := client.InsertManyFast(ctx, jobs)
		return err
	})
	if err != nil {
		return "", err
	}
	return "river " + moduleVersion("github.com/riverqueue/river") + ", " + version, d.await(ctx)
}
