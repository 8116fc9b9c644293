// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// drills are all cases.
var drills = []drill{
	{
		name: "monitor-killed", hold: 3 * time.Minute, want: []string{"OverdueUnreceived", "OverdueNoMonitor"}, atMost: 2 * time.Minute,
		inject:  func(s *site) error { return s.programs.kill(s.log("monitor")) },
		restore: func(s *site) error { return s.startRole("monitor") },
	},
	{
		name: "redis-killed", settings: "redis: \"redis://REDIS\"\n", hold: 4 * time.Minute, want: []string{"OverdueRedisGone"}, atMost: 4 * time.Minute,
		prepare: func(s *site) (err error) {
			if s.redis, err = address(); err != nil {
				return err
			}
			return s.startRedis()
		},
		inject:  func(s *site) error { return s.programs.kill(s.log("redis")) },
		restore: (*site).startRedis,
	},
	{
		name: "sink-down", hold: 7 * time.Minute, want: []string{"OverdueSinkFails"}, atMost: 7 * time.Minute,
		inject:  func(s *site) error { s.hook.down(); return nil },
		restore: func(s *site) error { return s.hook.up() },
	},
	{
		name: "throttled", hold: 4 * time.Minute, want: []string{"OverdueCompanionsFail"}, atMost: 4 * time.Minute,
		inject:  func(s *site) error { return s.throttle("send", "management") },
		restore: (*site).heal,
	},
	{
		// As on a machine whose clock is ten minutes slow.
		name: "clock-off", hold: 3 * time.Minute, want: []string{"OverdueClockOff"}, atMost: 2 * time.Minute, lasts: true,
		settled: func(s *site) error {
			return s.control(http.MethodPost, "clock", map[string]string{"advance": "10m"})
		},
	},
	{
		name: "disk-full", settings: onDisk, hold: 4 * time.Minute, want: []string{"OverdueHistoryFails"}, atMost: 4 * time.Minute,
		prepare: (*site).mountDisk,
		inject:  func(s *site) error { return fill(s.filler()) },
		restore: func(s *site) error { return os.Remove(s.filler()) },
	},
	{
		// The monitor queue refuses companions as well, so that the journal has to take them.
		name: "disk-full-journal", settings: onDisk, hold: 4 * time.Minute, want: []string{"OverdueCompanionsFail"}, atMost: 4 * time.Minute,
		prepare: (*site).mountDisk,
		inject:  func(s *site) error { return errors.Join(fill(s.filler()), s.refuseCompanions()) },
		restore: func(s *site) error { return errors.Join(os.Remove(s.filler()), s.heal()) },
	},
}

const onDisk = "onMonitorDown: pass\njournal: {directory: DIR/disk/ROLE-journal}\nhistory: {directory: DIR/disk/ROLE-history}\n"

// mountDisk mounts a small disk for the state of proxy and monitor.
func (s *site) mountDisk() error {
	disk := filepath.Join(s.dir, "disk")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		return fmt.Errorf("mount a small disk, which takes root: %w", err)
	}
	for _, folder := range []string{"proxy-journal", "proxy-history", "monitor-journal", "monitor-history"} {
		if err := os.MkdirAll(filepath.Join(disk, folder), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) filler() string { return filepath.Join(s.dir, "disk", "filler") }

// fill writes until the disk is full.
func fill(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, 1<<10); ; {
		if _, err := f.Write(b); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (s *site) refuseCompanions() error {
	return s.control(http.MethodPost, "faults", map[string]any{"entity": "overdue-monitor", "operation": "send", "error": "full", "times": 1_000_000})
}

func (s *site) startRedis() error {
	_, port, err := net.SplitHostPort(s.redis)
	if err != nil {
		return err
	}
	return s.programs.start(s.log("redis"), "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "")
}
