// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/listener"
)

// A client may not choose a different name for a namespace than the certificate has.
func TestSecureConnectionStringNamesWhatTheCertificateIsFor(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		names []string
		want  string
	}{
		{"127.0.0.1:5673", []string{"localhost", "127.0.0.1"}, "localhost:5673"},
		{"[::1]:5673", []string{"::1"}, "[::1]:5673"},
		{"[::]:5673", []string{"build.example", "localhost"}, "localhost:5673"},
		{"192.0.2.1:5673", []string{"*.example", "build.example"}, "build.example:5673"},
	} {
		b := &embedded{
			cfg:         &config.Config{},
			addrs:       []string{tt.addr},
			certificate: &listener.Certificate{Names: tt.names},
		}
		want := "Endpoint=sb://" + tt.want + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
		if got := b.shownSecureConnectionString(); got != want {
			t.Errorf("at %s for %v: %s, want %s", tt.addr, tt.names, got, want)
		}
	}
}

// A file that is right for the official emulator beside Overdue names the monitor queue. It is taken with what companions want, which
// the file cannot say; where it could not hold companions at all it is refused with what to change.
func TestAFileOfTheEmulatorMayNameTheMonitorQueue(t *testing.T) {
	for properties, want := range map[string]string{
		`{"LockDuration": "PT1M", "MaxDeliveryCount": 10, "DefaultMessageTimeToLive": "PT1H"}`: "",
		`{"LockDuration": "PT5M", "RequiresDuplicateDetection": true}`:                         "",
		`{"RequiresSession": true}`: `--broker-emulator-config: queue "Overdue-Monitor", the monitor queue: it requires sessions, which companions do not have; set RequiresSession to false, or change monitorQueue`,
		`{"ForwardTo": "orders"}`:   `it forwards to orders, where no monitor sees the companions; take ForwardTo out, or change monitorQueue`,
	} {
		file := filepath.Join(t.TempDir(), "Config.json")
		text := `{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "orders"}, {"Name": "Overdue-Monitor", "Properties": ` + properties + `}]}]}}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := loadText(t, "", nil, map[string]string{"broker.emulatorConfig": file})
		if err == nil {
			err = c.CheckRole(config.RoleRun)
		}
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", properties, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", properties, err)
			continue
		}
		for _, r := range []config.Role{config.RoleRun, config.RoleBroker} {
			var found []broker.QueueConfig
			set, _ := brokerConfig(c, r)
			for _, q := range set.Queues {
				if strings.EqualFold(q.Name, "overdue-monitor") {
					found = append(found, q)
				}
			}
			if len(found) != 1 || found[0].MaxDeliveryCount != 2000 || found[0].DefaultMessageTimeToLive != 0 || found[0].LockDuration < 10*time.Second {
				t.Errorf("%s: overdue %s makes %+v, want one queue for companions", properties, r.Name, found)
			}
			if warned := strings.Join(c.EmulatorWarnings(), "; "); !strings.Contains(warned, "queue Overdue-Monitor: DefaultMessageTimeToLive, MaxDeliveryCount; it is the monitor queue") {
				t.Errorf("%s: warnings %q, want what is not heeded", properties, warned)
			}
			if strings.Contains(properties, "Dup") && (len(found) != 1 || !found[0].RequiresDuplicateDetection || found[0].LockDuration != 5*time.Minute) {
				t.Errorf("%s: overdue %s makes %+v, want what the file says where that will do", properties, r.Name, found)
			}
		}
	}
}

func TestExampleOfTheBrokerIsAccepted(t *testing.T) {
	page, err := os.ReadFile("../../docs/broker/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no ```yaml block in docs/broker/README.md")
	}
	c, err := loadText(t, text, nil, nil)
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	cfg, _ := brokerConfig(c, config.RoleBroker)
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatalf("the broker refuses the example: %v", err)
	}
	defer b.Close()
	if n := len(b.Default().Entities()); n != 7 {
		t.Errorf("the example makes %d entities, want two queues, the monitor queue, a topic and its three subscriptions", n)
	}
}
