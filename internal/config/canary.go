// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
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
		if strings.EqualFold(q, c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue; the canary needs a queue of its own", c.At("canary.queue"), q)
		}
		c.watchCanary()
	}
	if c.Heartbeat.URL == "" && c.Heartbeat.URLFile == "" {
		if c.Heartbeat.Interval != byPath["heartbeat.interval"].standard() {
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

// watchCanary adds the canary's queue to the list of monitored entities, where there is one.
func (c *Config) watchCanary() {
	if q := c.Canary.Queue; q != "" && !c.Lists(q) && len(c.Monitor.Entities) > 0 {
		c.Monitor.Entities = append(slices.Clone(c.Monitor.Entities), Entity{Queue: q, Expire: "auto", StampTTL: true, DeadLetteringOnMessageExpiration: true})
	}
}
