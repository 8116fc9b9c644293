// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"
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

// complete checks the canary. Its queue is monitored, also where others are listed.
func (y *Canary) complete(c *Config) error {
	if y.Queue == "" {
		if c.Sources.aimless("canary.interval", y.Interval, "canary.queue") {
			return fmt.Errorf("%s is given, but there is no canary; set canary.queue, or remove it", c.At("canary.interval"))
		}
		return nil
	}
	if err := CheckEntity(y.Queue); err != nil {
		return fmt.Errorf("%s: %w", c.At("canary.queue"), err)
	}
	if c.isMonitorQueue(y.Queue) {
		return fmt.Errorf("%s is %q, the monitor queue; the canary needs a queue of its own", c.At("canary.queue"), y.Queue)
	}
	y.addToMonitored(c)
	return nil
}

// addToMonitored adds the queue to the list of monitored entities, where there is one.
func (y *Canary) addToMonitored(c *Config) {
	if y.Queue != "" && !c.Lists(y.Queue) && len(c.Monitor.Entities) > 0 {
		c.Monitor.Entities = append(slices.Clone(c.Monitor.Entities), Entity{Queue: y.Queue, Expire: "auto", StampTTL: true, DeadLetteringOnMessageExpiration: true})
	}
}

// complete reads the URL of the heartbeat.
func (h *Heartbeat) complete(c *Config) error {
	if h.URL == "" && h.URLFile == "" {
		if c.Sources.aimless("heartbeat.interval", h.Interval, "heartbeat.url", "heartbeat.urlFile") {
			return fmt.Errorf("%s is given, but there is no URL to ask for; set heartbeat.url or heartbeat.urlFile, or remove it", c.At("heartbeat.interval"))
		}
		return nil
	}
	if err := c.secret("heartbeat", "url", &h.URL, "urlFile", h.URLFile); err != nil {
		return err
	}
	if err := checkURL(h.URL); err != nil {
		return fmt.Errorf("%s: %w", c.At("heartbeat.urlFile"), err)
	}
	return nil
}

// readDashboard reads who may act on the dashboard. A short token could be guessed.
func (c *Config) readDashboard() error {
	d := &c.Dashboard
	err := c.optionalSecret("dashboard", "token", &d.Token, "tokenFile", d.TokenFile)
	switch n := len(d.Token); {
	case err != nil:
		return err
	case n > 0 && n < 16:
		return fmt.Errorf("%s has fewer than 16 characters; make one with: openssl rand -hex 16", c.At("dashboard.token"))
	case d.UserHeader == "":
		return nil
	case d.Token == "" && d.TokenFile == "":
		return fmt.Errorf("%s is given, but the dashboard only reads; set dashboard.tokenFile, or remove it", c.At("dashboard.userHeader"))
	case !httpguts.ValidHeaderFieldName(d.UserHeader):
		return fmt.Errorf("%s is %q; write the name of an HTTP header, such as X-Forwarded-User", c.At("dashboard.userHeader"), Clip(d.UserHeader))
	case slices.Contains([]string{"Authorization", "Cookie", "Proxy-Authorization"}, http.CanonicalHeaderKey(d.UserHeader)):
		return fmt.Errorf("%s is %q, which holds a secret and not a name; use the header in which the proxy names the user", c.At("dashboard.userHeader"), d.UserHeader)
	}
	return nil
}
