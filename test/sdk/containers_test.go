// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"overdue/internal/testing/container"
)

// The image of `make image` that stands in for the official emulator, and where it has its
// configuration.
const (
	emulatorImage  = "overdue:latest-emulator"
	emulatorConfig = "/ServiceBus_Emulator/ConfigFiles/Config.json"
)

// A way is one in which docs/broker/containers.md has an engine, a workflow or a module start the
// image.
type way struct {
	name    string
	env     []string
	mounted bool                                       // Config.json of the examples, as emulatorConfig
	wait    func(t *testing.T, c *container.Container) // until the way's user may connect
	address string                                     // as the way's user names it
	suite   string                                     // of examples/testing, if one speaks for the way's user
}

// forFixtures is what the fixtures of examples/testing want of a broker that they do not start.
var forFixtures = []string{"OVERDUE_BROKER_ISOLATE=true", "OVERDUE_BROKER_EXPIRY=eager"}

// ways are those of the page. The modules for Service Bus set the variables of the official
// emulator. So say the sources of Testcontainers for .NET 4.13, Java 2.0.5, Node 12.1 and Go 0.45,
// and those of Aspire 13.
func ways(t *testing.T) []way {
	t.Helper()
	official := func(sqlServer, password string) []string {
		return append([]string{"ACCEPT_EULA=Y", "SQL_SERVER=" + sqlServer, "MSSQL_SA_PASSWORD=" + password, "SQL_WAIT_INTERVAL=0"}, forFixtures...)
	}
	all := []way{
		{name: "docker run", env: forFixtures, wait: forHealth("5300")},
		{name: "module for .NET", env: official("database-container", "yourStrong(!)Password"), wait: forLineAndHealth},
		{name: "module for Java", env: official("tc-Zx81", "A_Str0ng_Required_Password"), wait: forLine, suite: "java"},
		{name: "module for Node", env: official("mssql", "P@ssword1!d3adb33f#"), wait: forHealth("5300"), suite: "js"},
		{name: "module for Go", env: official("mssql", "Strong@Passw0rd"), wait: forPortsAndHealth, suite: "go"},
		{name: "generic container in Python", env: forFixtures, wait: forHealth("5672"), suite: "python"},
		{name: "Aspire", env: []string{"ACCEPT_EULA=Y", "SQL_SERVER=messaging-mssql:1433", "MSSQL_SA_PASSWORD=Zx81Zx81"}, wait: forHealth("5300")},
	}
	for i := range all {
		all[i].mounted, all[i].address = true, "localhost:5672"
	}
	return append(all, composeWay(t), gitHubWay(t), gitLabWay(t))
}

// readListing reads one of examples/testing that the page shows.
func readListing(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/testing", name))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// variables are those of a listing that starts the image.
func variables(t *testing.T, listing, image string, named map[string]string) []string {
	t.Helper()
	if image != emulatorImage {
		t.Errorf("%s starts %q, want %s", listing, image, emulatorImage)
	}
	var all []string
	for name, value := range named {
		all = append(all, name+"="+value)
	}
	return all
}

func composeWay(t *testing.T) way {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Image          string
			Environment    map[string]string
			Volumes, Ports []string
		}
	}
	readListing(t, "compose.yaml", &file)
	s := file.Services["overdue"]
	if want := []string{"./Config.json:" + emulatorConfig + ":ro"}; !slices.Equal(s.Volumes, want) {
		t.Errorf("compose.yaml mounts %q, want %q", s.Volumes, want)
	}
	if want := []string{"127.0.0.1:5672:5672", "127.0.0.1:5300:5300"}; !slices.Equal(s.Ports, want) {
		t.Errorf("compose.yaml publishes %q, want %q", s.Ports, want)
	}
	env := variables(t, "compose.yaml", s.Image, s.Environment)
	return way{name: "Compose", env: env, mounted: true, wait: untilHealthy, address: "overdue:5672"}
}

func gitHubWay(t *testing.T) way {
	t.Helper()
	var file struct {
		Jobs struct {
			Test struct {
				Services map[string]struct {
					Image string
					Env   map[string]string
					Ports []string
				}
				Env map[string]string
			}
		}
	}
	readListing(t, "github.yaml", &file)
	job := file.Jobs.Test
	s := job.Services["servicebus"]
	if !slices.Contains(s.Ports, "5672:5672") {
		t.Errorf("github.yaml publishes %q, want 5672", s.Ports)
	}
	env := variables(t, "github.yaml", s.Image, s.Env)
	return way{name: "GitHub", env: env, wait: untilHealthy, address: job.Env["BROKER_ADDRESS"], suite: "js"}
}

func gitLabWay(t *testing.T) way {
	t.Helper()
	var file struct {
		Test struct {
			Services []struct {
				Name, Alias string
				Variables   map[string]string
			}
			Variables map[string]string
		}
	}
	readListing(t, "gitlab.yaml", &file)
	s, address := file.Test.Services[0], file.Test.Variables["BROKER_ADDRESS"]
	if address != s.Alias+":5672" {
		t.Errorf("gitlab.yaml has tests connect to %q, want %s:5672", address, s.Alias)
	}
	env := variables(t, "gitlab.yaml", s.Name, s.Variables)
	return way{name: "GitLab", env: env, wait: forPorts, address: address}
}

// eventually tries until there is no error, for a minute at most.
func eventually(t *testing.T, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func forLine(t *testing.T, c *container.Container) {
	t.Helper()
	c.WaitForLine(t, "Emulator Service is Successfully Up!")
}

func forHealth(port string) func(*testing.T, *container.Container) {
	return func(t *testing.T, _ *container.Container) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+port+"/health", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			_ = resp.Body.Close() // only the status is of interest
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
	}
}

func forPorts(t *testing.T, _ *container.Container) {
	t.Helper()
	for _, port := range []string{"5672", "5300"} {
		eventually(t, func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", "localhost:"+port)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
}

func forLineAndHealth(t *testing.T, c *container.Container) {
	t.Helper()
	forLine(t, c)
	forHealth("5300")(t, c)
}

func forPortsAndHealth(t *testing.T, c *container.Container) {
	t.Helper()
	forPorts(t, c)
	forHealth("5300")(t, c)
}

// untilHealthy waits as an engine does that runs the health check of the image.
func untilHealthy(t *testing.T, c *container.Container) {
	t.Helper()
	eventually(t, func(context.Context) error { return c.Healthy(t) })
}

func TestTheImageRunsInEachWayOfItsPage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program; not with -short")
	}
	installed := install(t)
	if !container.HasOwnNetwork(t) {
		return
	}
	config, err := os.ReadFile(filepath.Join(root, "examples/testing/Config.json"))
	if err != nil {
		t.Fatal(err)
	}
	image := container.Emulator(t)
	for _, w := range ways(t) {
		t.Run(w.name, func(t *testing.T) {
			if w.mounted {
				image.Copy(t, string(config), emulatorConfig)
			}
			c := image.Start(t, w.env...)
			defer c.Stop(t)
			w.wait(t, c)
			w.answers(t)
			if w.suite != "" {
				w.passes(t, installed[w.suite])
			}
		})
	}
}

// answers sends a message and receives it, with the name of the host that the way's user has.
func (w *way) answers(t *testing.T) {
	t.Helper()
	for _, r := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/test-orders/messages", http.StatusCreated},
		{http.MethodDelete, "/test-orders/messages/head?timeout=30", http.StatusOK},
		{http.MethodPost, "/test-order/messages", http.StatusGone},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, "http://localhost:5672"+r.path, strings.NewReader("one coffee"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = w.address
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the status is of interest
		if resp.StatusCode != r.want {
			t.Errorf("%s %s at %q = %s, want %d", r.method, r.path, w.address, resp.Status, r.want)
		}
	}
}

// passes runs a suite of examples/testing, whose fixture gets the address.
func (w *way) passes(t *testing.T, installed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./testing.sh", w.suite, installed, t.TempDir())
	cmd.Env = append(os.Environ(), "BROKER_ADDRESS=localhost:5672")
	if out, err := cmd.CombinedOutput(); err != nil || !passed[w.suite].Match(out) {
		t.Errorf("%v, and the output has to match %q:\n%s", err, passed[w.suite], out)
	}
}
