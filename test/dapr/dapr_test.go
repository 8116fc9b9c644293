// SPDX-License-Identifier: Apache-2.0

package dapr

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/kit/logger"
	"gopkg.in/yaml.v3"
)

const (
	root    = "../.."
	timeout = 3 * time.Minute
)

// Requests by daprd with the component file and with the request of the README.
func TestDaprPublishesThroughTheEndpoint(t *testing.T) {
	endpoint, broker := startOverdue(t)
	c := queues.NewAzureServiceBusQueues(logger.NewLogger("test"))
	properties := component(t, endpoint)
	if err := c.Init(t.Context(), pubsub.Metadata{Base: metadata.Base{Name: "orders-pubsub", Properties: properties}}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // overdue is stopped next
	topic, metadata := published(t)
	for id, within := range map[string]map[string]string{
		metadata["MessageId"]: metadata,
		"order-2":             {"MessageId": "order-2", "ttlInSeconds": "3600", "overdue-within": "2s"},
	} {
		if err := c.Publish(t.Context(), &pubsub.PublishRequest{PubsubName: "orders-pubsub", Topic: topic, Data: []byte("one coffee"), Metadata: within}); err != nil {
			t.Fatalf("publishing %s: %v", id, err)
		}
	}
	var dead string
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if dead = waiting(t, broker, topic+"/$DeadLetterQueue"); strings.Contains(dead, `"order-1"`) && strings.Contains(dead, `"order-2"`) {
			return
		}
	}
	t.Fatalf("dead letters after %v: %s, want both orders", timeout, dead)
}

// published is the topic and the metadata of the request that the README sends with curl.
func published(t *testing.T) (topic string, metadata map[string]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "examples/dapr/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`curl -i '[^']*/v1.0/publish/orders-pubsub/([^?']+)\?([^']+)' -d 'one coffee'`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the README publishes nothing")
	}
	query, err := url.ParseQuery(string(m[2]))
	if err != nil {
		t.Fatal(err)
	}
	metadata = map[string]string{}
	for name := range query {
		metadata[strings.TrimPrefix(name, "metadata.")] = query.Get(name)
	}
	return string(m[1]), metadata
}

// component is the metadata of the component file, with the endpoint of the test.
func component(t *testing.T, endpoint string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/dapr/components/orders.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Kind string
		Spec struct {
			Type     string
			Metadata []struct{ Name, Value string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Kind != "Component" || file.Spec.Type != "pubsub.azure.servicebus.queues" {
		t.Fatalf("it is a %s of type %s", file.Kind, file.Spec.Type)
	}
	properties := map[string]string{}
	for _, m := range file.Spec.Metadata {
		properties[m.Name] = m.Value
	}
	const usual = "sb://127.0.0.1:5672"
	if !strings.Contains(properties["connectionString"], usual) {
		t.Fatalf("its connectionString does not name %s", usual)
	}
	properties["connectionString"] = strings.Replace(properties["connectionString"], usual, "sb://"+endpoint, 1)
	return properties
}

// startOverdue builds the program and runs it on free ports.
func startOverdue(t *testing.T) (endpoint, broker string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "overdue")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/overdue")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "run", "--listen-amqp", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
		late := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("overdue ended with %v", err)
		}
	})
	var addrs []string
	for lines := bufio.NewScanner(stdout); len(addrs) < 2 && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Endpoint=sb://"); ok {
			addr, _, _ := strings.Cut(rest, ";")
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) < 2 {
		t.Fatal("overdue has not started")
	}
	return addrs[0], addrs[1]
}

// waiting is what the embedded broker has in a queue.
func waiting(t *testing.T, broker, queue string) string {
	t.Helper()
	answer, err := http.Get("http://" + broker + "/_overdue/messages/" + queue)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it is read whole
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
