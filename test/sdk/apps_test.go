// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
)

// The apps in examples/ of the root, each as its README says. Their commands here differ from those
// of the READMEs in where the packages are.
const root = "../.."

// languages say how the apps in one language run: $0 is the folder of install.sh, $1 that of the
// app, $2 an empty one, $3 the argument of the app.
var languages = []struct{ name, run string }{
	{"go", `go build -o "$2/app" "$1" && exec "$2/app" "$3"`},
	{"js", `cp "$1"/*js "$2" && ln -s "$0/node_modules" "$2/node_modules" && exec node "$2"/app.*js "$3"`},
	{"python", `exec "$0/bin/python" -B "$1/app.py" "$3"`},
	{"java", javac + ` -cp "$0/*" -d "$2" "$1/App.java" && exec ` + java + ` -cp "$0/*:$2" App "$3"`},
}

func TestExamplesDoWhatTheirPagesSay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed, program := install(t), buildBroker(t)
	for _, l := range languages {
		app := func(t *testing.T, example, argument string) *exampleApp {
			return startApp(t, exec.Command("sh", "-c", l.run, installed[l.name], filepath.Join(root, "examples", example, l.name), t.TempDir(), argument))
		}
		t.Run("sidecar in "+l.name, func(t *testing.T) {
			t.Parallel()
			page, p := examplePage(t, "sidecar", l.name), startRun(t, program)
			app(t, "sidecar", p.connection()).prints(t, page.prints[0])
			p.log.has(t, page.prints[1])
		})
		t.Run("rest in "+l.name, func(t *testing.T) {
			t.Parallel()
			page, p := examplePage(t, "rest", l.name), startRun(t, program)
			app(t, "rest", "http://"+p.rest).prints(t, page.prints[0])
			p.log.has(t, page.prints[1])
		})
		t.Run("dead-letters in "+l.name, func(t *testing.T) {
			t.Parallel()
			page, hookAddr := examplePage(t, "dead-letters", l.name), freeport.Address(t)
			hook := startApp(t, exec.Command("python3", "-B", root+"/examples/dead-letters/hook.py", hookAddr[strings.LastIndex(hookAddr, ":")+1:]))
			p := startRun(t, program, "--config", withAddress(t, "dead-letters/overdue.yaml", "127.0.0.1:9999", hookAddr))
			handler := app(t, "dead-letters", p.connection())
			p.post(t, "order-1", 2)
			handler.printsSoon(t, page.prints[0])
			hook.printsSoon(t, page.prints[1])
			p.post(t, "order-2", 3600)
			deadLetter(t, p.connection(), "NoCoffeeLeft")
			handler.printsSoon(t, "order-2: NoCoffeeLeft, now in failed-orders\n")
			for queue, id := range map[string]string{"late-orders": "order-1", "failed-orders": "order-2"} {
				if got := waiting(t, p.broker, queue); !strings.Contains(got, `"`+id+`"`) || !strings.Contains(got, "one coffee") && !strings.Contains(got, "b25lIGNvZmZlZQ") {
					t.Errorf("%s has %s, want %s", queue, got, id)
				}
			}
			if left := waiting(t, p.broker, "orders/$DeadLetterQueue"); left != "[]\n" {
				t.Errorf("dead letters that are left: %s", left)
			}
		})
	}
	t.Run("spring", func(t *testing.T) {
		t.Parallel()
		page, p := examplePage(t, "spring", ""), startRun(t, program)
		const run = javac + ` -parameters -cp "$0/*" -d "$2" "$1"/src/main/java/orders/*.java && cp "$1"/src/main/resources/* "$2" &&
			exec ` + java + ` -cp "$0/*:$2" orders.App`
		cmd := exec.Command("sh", "-c", run, installed["spring"], root+"/examples/spring", t.TempDir())
		cmd.Env = append(os.Environ(), "CONNECTION="+p.connection())
		startApp(t, cmd).prints(t, page.prints[0])
		p.log.has(t, page.prints[1])
	})
	t.Run("functions", func(t *testing.T) {
		t.Parallel()
		page, p := examplePage(t, "functions", ""), startRun(t, program)
		const run = `cp -r "$1" functions/host.cjs "$2" && ln -s "$0/node_modules" "$2/node_modules" && exec node "$2/host.cjs" "$2/functions" "$3"`
		startApp(t, exec.Command("sh", "-c", run, installed["js"], root+"/examples/functions", t.TempDir(), p.connection())).prints(t, page.prints[0])
		p.log.has(t, page.prints[1])
	})
	t.Run("adopt", func(t *testing.T) {
		t.Parallel()
		page := examplePage(t, "adopt", "")
		var broker string
		start(t, exec.Command(program, "broker", "--broker-listen", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"), &broker)
		log, connection := &logLines{}, connectionTo(broker)
		monitor := exec.Command(program, "monitor", "--config", root+"/examples/adopt/overdue.yaml", "--namespace", connection, "--listen-admin", "127.0.0.1:0")
		monitor.Stderr = log
		start(t, monitor)
		go1 := languages[0]
		startApp(t, exec.Command("sh", "-c", go1.run, "", root+"/examples/sidecar/go", t.TempDir(), connection)).prints(t, page.prints[0])
		log.has(t, page.prints[1])
	})
}

// A testPage is the README of an example: what it says that programs print.
type testPage struct{ prints []string }

var printed = regexp.MustCompile("(?s)```text\n(.*?)```")

// examplePage reads a README, which has to name the folder of the language.
func examplePage(t *testing.T, example, language string) testPage {
	t.Helper()
	name := filepath.Join(root, "examples", example, "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if folder := "examples/" + example + "/" + language; !strings.Contains(string(text), folder) && language != "" {
		t.Errorf("%s does not say how to run %s", name, folder)
	}
	var p testPage
	for _, m := range printed.FindAllStringSubmatch(string(text), -1) {
		p.prints = append(p.prints, m[1])
	}
	if len(p.prints) != 2 {
		t.Fatalf("%s shows %d outputs, want that of the app and that of the alert", name, len(p.prints))
	}
	return p
}

// A runningOverdue is `overdue run` for one app.
type runningOverdue struct {
	endpoint, rest, broker string
	log                    *logLines
}

func startRun(t *testing.T, program string, args ...string) *runningOverdue {
	t.Helper()
	p := &runningOverdue{rest: freeport.Address(t), log: &logLines{}}
	cmd := exec.Command(program, append([]string{"run", "--listen-amqp", "127.0.0.1:0", "--listen-http", p.rest,
		"--listen-admin", "127.0.0.1:0", "--broker-listen", freeport.Address(t)}, args...)...)
	cmd.Stderr = p.log
	start(t, cmd, &p.endpoint, &p.broker)
	return p
}

func (p *runningOverdue) connection() string { return connectionTo(p.endpoint) }

func connectionTo(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
}

// post sends an order as the READMEs do with curl.
func (p *runningOverdue) post(t *testing.T, id string, seconds int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.rest+"/orders/messages", strings.NewReader("one coffee"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId": %q, "TimeToLive": %d}`, id, seconds))
	r.Close = true // an app that is not connected is not waited for
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is empty
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", id, answer.Status)
	}
}

// deadLetter is a consumer of orders that cannot handle the next one.
func deadLetter(t *testing.T, connection, reason string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), suiteTimeout)
	defer stop()
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(ctx) }() // overdue is stopped next
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.DeadLetterMessage(ctx, messages[0], &azservicebus.DeadLetterOptions{Reason: &reason}); err != nil {
		t.Fatal(err)
	}
}

// waiting is what the embedded broker has in a queue, as its HTTP endpoint shows it.
func waiting(t *testing.T, broker, queue string) string {
	t.Helper()
	answer, err := http.Get("http://" + broker + "/_overdue/messages/" + queue)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it is read whole
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("messages of %s: %s %v", queue, answer.Status, err)
	}
	return string(text)
}

// withAddress is a copy of a configuration file in which one address stands in place of another.
func withAddress(t *testing.T, name, before, after string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s does not name %s", name, before)
	}
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), before, after)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An exampleApp is a program that runs, and its output so far.
type exampleApp struct {
	lines <-chan string
	ended <-chan error
}

// startApp starts a program, and kills it when the test ends.
func startApp(t *testing.T, cmd *exec.Cmd) *exampleApp {
	t.Helper()
	stderr := &logLines{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			lines <- in.Text()
		}
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended
		for line := range lines {
			t.Logf("not expected from %q: %s", cmd.Args, line)
		}
		if t.Failed() {
			t.Logf("%q said on stderr: %s", cmd.Args, stderr.text())
		}
	})
	return &exampleApp{lines, ended}
}

// printsSoon checks the next lines of the program.
func (a *exampleApp) printsSoon(t *testing.T, want string) {
	t.Helper()
	for line := range strings.Lines(want) {
		select {
		case got, ok := <-a.lines:
			if !ok || alike(got) != alike(strings.TrimSuffix(line, "\n")) {
				t.Fatalf("it printed %q (more: %v), want %q", got, ok, line)
			}
		case <-time.After(suiteTimeout):
			t.Fatalf("it has not printed %q within %v", line, suiteTimeout)
		}
	}
}

// prints checks all lines of the program, and that it ends well.
func (a *exampleApp) prints(t *testing.T, want string) {
	t.Helper()
	a.printsSoon(t, want)
	select {
	case more, ok := <-a.lines:
		if ok {
			t.Fatalf("it printed %q too", more)
		}
		if err := <-a.ended; err != nil {
			t.Fatalf("it ended with %v", err)
		}
	case <-time.After(suiteTimeout):
		t.Fatalf("it has not ended within %v", suiteTimeout)
	}
}

var milliseconds = regexp.MustCompile(`\b\d+ ms\b`)

// alike is a line without what differs from run to run.
func alike(line string) string { return milliseconds.ReplaceAllString(line, "N ms") }

// logLines are the JSON log of a process.
type logLines struct {
	mu      sync.Mutex
	written strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.Write(b)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.String()
}

// has waits for an entry that reads like a line of a README.
func (l *logLines) has(t *testing.T, want string) {
	t.Helper()
	want = alike(strings.TrimSpace(want))
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		for line := range strings.Lines(l.text()) {
			var entry struct{ Msg string }
			if json.Unmarshal([]byte(line), &entry) == nil && alike(entry.Msg) == want {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has no %q:\n%s", want, cmp.Or(l.text(), "nothing"))
		}
	}
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
		{"js/package.json", `"@azure/functions": "([\d.]+)"`, "functions/package.json", `"@azure/functions": "^%s"`},
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
