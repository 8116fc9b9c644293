// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/adminport"
	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/testing/freeport"
)

// zeros are the reasons for which a gauge is 0. All others have to be 1.
func zeros(t *testing.T, registry *prometheus.Registry, name string) (reasons []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch value := m.GetGauge().GetValue(); {
			case labels[namespaceLabel] == "":
				t.Errorf("%s has a series without a namespace: %v", name, labels)
			case value == 0:
				reasons = append(reasons, labels["reason"])
			case value != 1:
				t.Errorf("%s is %v for %v, want 0 or 1", name, value, labels)
			}
		}
	}
	return reasons
}

// serveKeyed serves a namespace with one key and these queues.
func serveKeyed(t *testing.T, queues ...broker.QueueConfig) (*broker.Broker, string) {
	t.Helper()
	b, err := broker.New(broker.Config{
		Queues: queues,
		Keys:   []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "c2VjcmV0c2VjcmV0", Send: true, Listen: true, Manage: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { _ = b.Close() })
	return b, ln.Addr().String()
}

// Metrics, probe and alerts say one thing of one state.
func TestProbeAndMetricsNameTheSameReason(t *testing.T) {
	monitorQueue := broker.QueueConfig{Name: "overdue-monitor"}
	for name, tt := range map[string]struct {
		namespace func(*testing.T) string
		want      adminport.Reason
	}{
		"nobody listens": {func(t *testing.T) string {
			return config.ConnectionString(freeport.Address(t), "k", "c2VjcmV0c2VjcmV0")
		}, adminport.NamespaceDown},
		"another key": {func(t *testing.T) string {
			_, addr := serveKeyed(t, monitorQueue)
			return config.ConnectionString(addr, "k", "YW5vdGhlcmFub3RoZXI=")
		}, adminport.KeyRefused},
		"no monitor queue": {func(t *testing.T) string {
			_, addr := serveKeyed(t)
			return config.ConnectionString(addr, "k", "c2VjcmV0c2VjcmV0")
		}, adminport.MonitorQueueMissing},
		"a monitor queue that is full": {func(t *testing.T) string {
			b, addr := serveKeyed(t, monitorQueue)
			b.Default().Inject(broker.Fault{Entity: monitorQueue.Name, Operation: broker.OnManagement, Error: broker.EntityFull()})
			return config.ConnectionString(addr, "k", "c2VjcmV0c2VjcmV0")
		}, adminport.MonitorQueueFull},
	} {
		t.Run(name, func(t *testing.T) {
			p := startRole(t, config.RoleProxy, "namespace: \""+tt.namespace(t)+"\"\n")
			want := []string{string(tt.want)}
			eventually(t, string(tt.want), func() bool { return cmp.Equal(want, zeros(t, p.registry, "overdue_upstream_up")) })
			if diff := cmp.Diff(want, zeros(t, p.registry, "overdue_ready")); diff != "" {
				t.Errorf("overdue_ready is 0 for (-want +got):\n%s", diff)
			}
			if text := askReady(t, p); !strings.Contains(text, "(reason "+string(tt.want)+")") {
				t.Errorf("/readyz says %q, want the reason %s", text, tt.want)
			}
		})
	}
}

func TestAProcessThatGoesOnWithoutItsMonitorQueueIsReady(t *testing.T) {
	_, addr := serveKeyed(t)
	p := startRole(t, config.RoleProxy, "namespace: \""+config.ConnectionString(addr, "k", "c2VjcmV0c2VjcmV0")+
		"\"\nonMonitorDown: pass\njournal: {directory: \""+t.TempDir()+"\"}\n")
	want := []string{string(adminport.MonitorQueueMissing)}
	eventually(t, "the queue is missing", func() bool { return cmp.Equal(want, zeros(t, p.registry, "overdue_upstream_up")) })
	if got := zeros(t, p.registry, "overdue_ready"); len(got) != 0 {
		t.Errorf("overdue_ready is 0 for %v, want 1 for all", got)
	}
}

func askReady(t *testing.T, p *Process) string {
	t.Helper()
	resp, err := http.Get("http://" + p.AdminAddress() + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
