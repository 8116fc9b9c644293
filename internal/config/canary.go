// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"time"
)

// Canary is the deadline that Overdue misses on purpose.
type Canary struct {
	Queue    string        `mapstructure:"queue"`
	Interval time.Duration `mapstructure:"interval"`
}

// Heartbeat is an outside dead man's switch.
type Heartbeat struct {
	URL      string        `mapstructure:"url"`
	URLFile  string        `mapstructure:"urlFile"`
	Interval time.Duration `mapstructure:"interval"`
}

// completeWatch checks how Overdue watches itself. The canary's queue is monitored, also where others are listed.
func (c *Config) completeWatch() error {
	if q := c.Canary.Queue; q != "" {
		if err := CheckEntity(q); err != nil {
			return fmt.Errorf("%s: %w", c.At("canary.queue"), err)
		}
		if c.isMonitorQueue(q) {
			return fmt.Errorf("%s is %q, the monitor queue; the canary needs a queue of its own", c.At("canary.queue"), q)
		}
		c.watchCanary()
	} else if c.aimless("canary.interval", c.Canary.Interval, "canary.queue") {
		return fmt.Errorf("%s is given, but there is no canary; set canary.queue, or remove it", c.At("canary.interval"))
	}
	if c.Heartbeat.URL == "" && c.Heartbeat.URLFile == "" {
		if c.aimless("heartbeat.interval", c.Heartbeat.Interval, "heartbeat.url", "heartbeat.urlFile") {
			return fmt.Errorf("%s is given, but there is no URL to ask for; set heartbeat.url or heartbeat.urlFile, or remove it", c.At("heartbeat.interval"))
		}
		return nil
	}
	if err := c.secret("heartbeat", "url", &c.Heartbeat.URL, "urlFile", c.Heartbeat.URLFile); err != nil {
		return err
	}
	if err := checkURL(c.Heartbeat.URL); err != nil {
		return fmt.Errorf("%s: %w", c.At("heartbeat.urlFile"), err)
	}
	return nil
}

// aimless reports whether an interval is given without any of the keys that it needs. A file with all keys,
// as of `config print` and `config example`, has them without a value, and the standard interval.
func (c *Config) aimless(key string, interval time.Duration, needs ...string) bool {
	listed := slices.ContainsFunc(needs, func(need string) bool { return c.blank[need] })
	return c.Given(key) && (!listed || interval != byPath[key].standard())
}

// watchCanary adds the canary's queue to the list of monitored entities, where there is one.
func (c *Config) watchCanary() {
	if q := c.Canary.Queue; q != "" && !c.Lists(q) && len(c.Monitor.Entities) > 0 {
		c.Monitor.Entities = append(slices.Clone(c.Monitor.Entities), Entity{Queue: q, Expire: "auto", StampTTL: true, DeadLetteringOnMessageExpiration: true})
	}
}

// readToken reads the token of the dashboard. A short one could be guessed.
func (c *Config) readToken() error {
	err := c.optionalSecret("dashboard", "token", &c.Dashboard.Token, "tokenFile", c.Dashboard.TokenFile)
	if n := len(c.Dashboard.Token); err == nil && n > 0 && n < 16 {
		return fmt.Errorf("%s has fewer than 16 characters; make one with: openssl rand -hex 16", c.At("dashboard.token"))
	}
	return err
}
