// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const root = "../.."

// notHere are programs that pages name and the machines that test do not have.
var notHere = []string{"dotnet", "dapr"}

// Maven before 4 cannot fill the folder that all projects share from several processes at once.
var maven sync.Mutex

// A reader follows each page word by word, in a copy of the examples. Only the ports are others.
func TestExamplesDoWhatTheirPagesSay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("pages of the examples: %q, %v", files, err)
	}
	installed, program := install(t), buildBroker(t)
	for _, file := range files {
		p := readPage(t, file)
		for _, language := range p.languages {
			t.Run(strings.TrimSpace(p.example+" "+language), func(t *testing.T) {
				t.Parallel()
				for _, name := range notHere {
					if _, err := exec.LookPath(name); err != nil && p.runs(name, language) {
						t.Skipf("needs %s", name)
					}
				}
				if p.runs("mvn", language) {
					maven.Lock()
					defer maven.Unlock()
				}
				r := newReader(t, installed, program)
				for _, s := range p.steps {
					if s.language == "" || s.language == language {
						r.follow(s)
					}
				}
				if p.example == "dead-letters" {
					r.deadLettersGoWhereThePageSays()
				}
			})
		}
	}
}

// A consumer dead-letters an order that it cannot handle, which the handler puts elsewhere.
func (r *reader) deadLettersGoWhereThePageSays() {
	r.t.Helper()
	ctx, stop := context.WithTimeout(r.t.Context(), suiteTimeout)
	defer stop()
	connection := strings.TrimSuffix(strings.TrimPrefix(r.variables, "CONNECTION='"), "'\n")
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = client.Close(ctx) }() // overdue is stopped next
	sender, err := client.NewSender("handled-orders", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	id, reason := "order-2", "NoCoffeeLeft"
	if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte("one coffee")}, nil); err != nil {
		r.t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("handled-orders", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := receiver.DeadLetterMessage(ctx, messages[0], &azservicebus.DeadLetterOptions{Reason: &reason}); err != nil {
		r.t.Fatal(err)
	}
	r.sees("order-2: NoCoffeeLeft, now in failed-orders")
	for queue, id := range map[string]string{"late-orders": "order-1", "failed-orders": "order-2"} {
		if got := r.waiting(queue); !strings.Contains(got, `"`+id+`"`) || !strings.Contains(got, "one coffee") && !strings.Contains(got, "b25lIGNvZmZlZQ") {
			r.t.Errorf("%s has %s, want %s", queue, got, id)
		}
	}
	if left := r.waiting("handled-orders/$DeadLetterQueue"); left != "[]\n" {
		r.t.Errorf("dead letters that are left: %s", left)
	}
}

// waiting is what the embedded broker has in a queue, as its HTTP endpoint shows it.
func (r *reader) waiting(queue string) string {
	r.t.Helper()
	answer, err := http.Get(r.ports.Replace("http://127.0.0.1:5673/_overdue/messages/") + queue)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it is read whole
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		r.t.Fatalf("messages of %s: %s %v", queue, answer.Status, err)
	}
	return string(text)
}

// The order of one example is not received by the app of another.
func TestEachExampleHasItsOwnQueues(t *testing.T) {
	queue, shared := regexp.MustCompile(`\b([a-z]+-)+orders\b`), regexp.MustCompile(`(["'/]|: )orders(["'/?]|$)`)
	owners := map[string]string{}
	for name, text := range exampleFiles(t) {
		example, _, inFolder := strings.Cut(name, "/")
		if !inFolder {
			continue // README.md, which is about all
		}
		if m := shared.FindString(text); m != "" {
			t.Errorf("%s names the queue of no example: %s", name, m)
		}
		for _, q := range queue.FindAllString(text, -1) {
			if owner, known := owners[q]; known && owner != example {
				t.Errorf("%s is a queue of the examples %s and %s", q, owner, example)
			}
			owners[q] = example
		}
	}
	if len(owners) < 8 {
		t.Errorf("queues of the examples: %v", owners)
	}
}

// exampleFiles is what the files below examples hold, by name. Files of package managers are left
// out.
func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	examples := os.DirFS(filepath.Join(root, "examples"))
	err := fs.WalkDir(examples, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"node_modules", ".venv", "target", "bin", "obj"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		text, err := fs.ReadFile(examples, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The README's app is the one that runs.
func TestTheReadmeQuotesTheExample(t *testing.T) {
	page, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	app, err := os.ReadFile(root + "/examples/sidecar/js/app.js")
	if err != nil {
		t.Fatal(err)
	}
	if quoted := shown(string(app)); !strings.Contains(string(page), "```js\n"+quoted+"```\n") {
		t.Errorf("README.md does not quote examples/sidecar/js/app.js; it has to show:\n%s", quoted)
	}
}

// The examples name the versions that the tests have.
func TestExamplesNameTestedVersions(t *testing.T) {
	for _, v := range []struct{ tested, version, files, want string }{
		{"js/package.json", `"@azure/service-bus": "([\d.]+)"`, "*/js/package.json", `"@azure/service-bus": "^%s"`},
		{"python/requirements.txt", `azure-servicebus==(\d+\.\d+)\.`, "*/python/requirements.txt", "azure-servicebus~=%s\n"},
		{"java/pom.xml", `<artifactId>azure-messaging-servicebus</artifactId>\s*<version>([\d.]+)`, "*/java/pom.xml", "<version>%s</version>"},
		{"java/pom.xml", `<artifactId>azure-messaging-servicebus</artifactId>\s*<version>([\d.]+)`, "spring/pom.xml", "<version>%s</version>"},
	} {
		text, err := os.ReadFile(v.tested)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(v.version).FindSubmatch(text)
		files, err := filepath.Glob(filepath.Join(root, "examples", v.files))
		if err != nil || m == nil || len(files) == 0 {
			t.Fatalf("%s has no %s, or there are too few of %s: %d, %v", v.tested, v.version, v.files, len(files), err)
		}
		for _, name := range files {
			if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), fmt.Sprintf(v.want, m[1])) {
				t.Errorf("%s does not ask for %s (%v)", name, fmt.Sprintf(v.want, m[1]), err)
			}
		}
	}
}
