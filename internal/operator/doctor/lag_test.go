// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/lag"
)

// lagConfig is where the holder of a key measures.
func (c *clinic) lagConfig(keyName, key string) LagConfig {
	c.Helper()
	cfg := c.config(keyName, key)
	return LagConfig{
		Host: host, Links: cfg.Links, Admin: cfg.Admin,
		Administration: func() (*admin.Client, error) { return c.admin(keyName, key), nil },
	}
}

// leftQueues returns the queues of measurements that are left.
func (c *clinic) leftQueues() (left []string) {
	for _, q := range c.ns.Queues() {
		if strings.HasPrefix(q.Config.Name, "overdue-lag-") {
			left = append(left, q.Config.Name)
		}
	}
	return left
}

func TestMeasureLagComparesNativeWithEagerExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		var progress []string
		r, err := MeasureLag(t.Context(), c.lagConfig("manage", "bQ=="), LagOptions{
			Messages: 5, Spread: 2 * time.Second, Wait: time.Second, Progress: func(line string) { progress = append(progress, line) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Eager.DeadLettered != 5 || r.Eager.Waiting != 0 || r.Err() != nil {
			t.Errorf("eager %+v, %v; want all messages dead-lettered", r.Eager, r.Err())
		}
		if r.Eager.LagMs.Max > 1000 {
			t.Errorf("the monitor was %v ms late", r.Eager.LagMs.Max)
		}
		if r.Native.DeadLettered != 0 || r.Native.Waiting != 5 {
			t.Errorf("native %+v; want no message dead-lettered, since nobody receives", r.Native)
		}
		want := []string{
			"Created three queues in contoso.test. Sending 5 messages to two of them, without a consumer.",
			"The deadlines are spread over 2s; then the native queue has 1s more.",
		}
		if diff := cmp.Diff(want, progress); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
		if left := c.leftQueues(); len(left) > 0 {
			t.Errorf("queues %q are left", left)
		}
	})
}

func TestMeasureLagDeletesItsQueuesWhenItIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, err := MeasureLag(ctx, c.lagConfig("manage", "bQ=="), LagOptions{Messages: 1, Wait: time.Minute}); !errors.Is(err, errInterrupted) {
			t.Errorf("MeasureLag = %v, want that it was interrupted", err)
		}
		if left := c.leftQueues(); len(left) > 0 {
			t.Errorf("queues %q are left", left)
		}
	})
}

func TestMeasureLagNeedsTheRightManage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		_, err := MeasureLag(t.Context(), c.lagConfig("app", "YQ=="), LagOptions{Messages: 1})
		if err == nil || !strings.HasPrefix(err.Error(), "creating queues needs the Manage right over the administration API: ") {
			t.Errorf("MeasureLag = %v, want that it needs the Manage right", err)
		}
		cfg := c.lagConfig("manage", "bQ==")
		broken := errors.New("no identity")
		cfg.Administration = func() (*admin.Client, error) { return nil, broken }
		if _, err := MeasureLag(t.Context(), cfg, LagOptions{Messages: 1}); !errors.Is(err, broken) {
			t.Errorf("MeasureLag = %v, want the error of the client", err)
		}
		cfg.Administration = func() (*admin.Client, error) { return c.admin("app", "YQ=="), nil }
		_, err = MeasureLag(t.Context(), cfg, LagOptions{Messages: 1})
		if err == nil || !strings.HasPrefix(err.Error(), "create the queue overdue-lag-") || !strings.HasSuffix(err.Error(), "-eager: status 401") {
			t.Errorf("MeasureLag = %v, want the queue that could not be created", err)
		}
	})
}

func TestTheGraphOfLagsFitsTheTerminal(t *testing.T) {
	ms := func(all ...int) (lags []time.Duration) {
		for _, n := range all {
			lags = append(lags, time.Duration(n)*time.Millisecond)
		}
		return lags
	}
	eager, native := ms(40, 90, 130, 160), ms(40_000, 3_600_000)
	r := &LagResult{
		Namespace: "contoso.servicebus.windows.net", Messages: 4, ResolutionMs: 100, wait: 90 * time.Minute,
		Eager: QueueLag{DeadLettered: 4, LagMs: lag.Of(eager)}, eager: eager,
		Native: QueueLag{DeadLettered: 2, Waiting: 2, LagMs: lag.Of(native)}, native: native,
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, false); err != nil {
		t.Fatal(err)
	}
	const want = `
  lag after the deadline   native expiry                with Overdue
  up to 100ms                                             2 ████████████
  up to 250ms                                             2 ████████████
  up to 500ms
  up to 1s
  up to 2.5s
  up to 5s
  up to 10s
  up to 30s
  up to 1m                   1 ██████
  up to 5m
  up to 10m
  up to 30m
  more                       1 ██████
  still there after 1h30m    2 ████████████

  native expiry            2 of 4 dead-lettered; lag p50 40000 ms, p99 3600000 ms, max 3600000 ms
  with Overdue             4 of 4 dead-lettered; lag p50 90 ms, p99 160 ms, max 160 ms
  resolution               100 ms plus a round trip to contoso.servicebus.windows.net
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := r.WriteText(&out, true); err != nil || !strings.Contains(out.String(), "\x1b[32m████████████\x1b[0m") {
		t.Errorf("WriteText = %v, and no bar of the monitored queue is green:\n%q", err, &out)
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"native":{"deadLettered":2,"waiting":2,"lagMs":{"p50":40000,`) {
		t.Errorf("JSON %s, %v", b, err)
	}
}

func TestAMeasurementFailsIfMonitoredMessagesAreLeft(t *testing.T) {
	r := &LagResult{Messages: 3, Eager: QueueLag{DeadLettered: 2, Waiting: 1}}
	const want = "only 2 of 3 monitored messages were dead-lettered; run `overdue doctor` to find out why"
	if err := r.Err(); err == nil || err.Error() != want {
		t.Errorf("Err = %v, want %q", err, want)
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, false); err != nil || !strings.Contains(out.String(), "native expiry            0 of 3 dead-lettered\n") {
		t.Errorf("WriteText = %v:\n%s", err, &out)
	}
}
