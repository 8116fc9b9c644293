// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/store"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/racetest"
)

// The way to a namespace of which nothing is known but its connection string, tried on our own,
// which keeps everything on disk.
func TestEmbeddedBrokerByItsConnectionString(t *testing.T) {
	racetest.Skip(t, "test/conformance has a broker with real connections under it")
	Run(t, RealTime, func(t *testing.T) *Target {
		disk, err := store.Open(filepath.Join(t.TempDir(), "broker"))
		if err != nil {
			t.Fatal(err)
		}
		disk.KeepInMemory(1<<10, 4<<10) // of the rest, the disk alone has the contents
		b, err := broker.New(broker.Config{Keys: []broker.AuthorizationRule{brokertest.Key()}, Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := httpapi.New(httpapi.Config{Broker: b})
		done := make(chan error, 1)
		go func() { done <- server.Serve(ln) }()
		t.Cleanup(func() {
			if err := errors.Join(server.Close(), b.Close(), disk.Close()); err != nil {
				t.Errorf("closing the broker: %v", err)
			}
			if err := <-done; !errors.Is(err, httpapi.ErrServerClosed) {
				t.Errorf("Serve = %v, want ErrServerClosed", err)
			}
		})
		var ahead time.Duration
		x := External{
			ConnectionString: "Endpoint=sb://" + ln.Addr().String() + ";SharedAccessKeyName=" + brokertest.Key().KeyName +
				";SharedAccessKey=" + brokertest.Key().PrimaryKey + ";UseDevelopmentEmulator=true",
			AdminURL:     "http://" + ln.Addr().String(),
			REST:         true,
			LockDuration: 30 * time.Second,
			Wait: func(d time.Duration) {
				ahead += d
				b.SetClockOffset(ahead)
			},
		}
		target := x.Target(t)
		// Nothing passes by itself here, so a refusal that the client repeats may be repeated at once.
		target.ClientOptions = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{RetryDelay: time.Millisecond}}
		return target
	})
}

// A real namespace, or the official emulator, when the environment names one:
//
//	OVERDUE_TEST_CONNECTION_STRING  with the claim Manage
//	OVERDUE_TEST_ADMIN_URL          where its administration API is not at https://<endpoint>
//
// Time passes there as everywhere; give it an hour (-timeout 90m).
func TestNamespaceOfTheEnvironment(t *testing.T) {
	cs := os.Getenv("OVERDUE_TEST_CONNECTION_STRING")
	if cs == "" {
		t.Skip("OVERDUE_TEST_CONNECTION_STRING names no namespace")
	}
	x := External{ConnectionString: cs, AdminURL: os.Getenv("OVERDUE_TEST_ADMIN_URL")}
	x.REST = x.AdminURL == ""
	Run(t, RealTime, x.Target)
}
