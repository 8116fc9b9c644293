// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
	"overdue/internal/testing/testseed"
)

// kills is how often the broker is killed in each run.
var kills = flag.Int("kills", 5, "how often TestNothingAcknowledgedIsLostWhenTheBrokerIsKilled kills the broker")

// killedAhead is how many messages an app sends before it receives the first of them.
const killedAhead = 20

// roundTimeout bounds the time until every app has sent and completed again. It takes a second.
const roundTimeout = time.Minute

// killed are apps of which each has a queue of its own. One in Go is in this process.
var killed = map[string]func(ctx context.Context, installed, scratch string) *exec.Cmd{
	"js": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", `cp js/package.json killed/killed.js "$1" && ln -s "$0/node_modules" "$1/node_modules" && exec node "$1/killed.js" killed-js`, installed, scratch)
	},
	"python": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(installed, "bin", "python"), "-B", "killed/killed.py", "killed-python")
	},
}

// The broker is killed with SIGKILL at random moments, while apps with three SDKs send to sessions
// and complete what they receive. Nothing that was acknowledged is lost: no message, no completion,
// no message-id, no sequence number and no order.
func TestNothingAcknowledgedIsLostWhenTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python and their packages; not with -short")
	}
	installed, program := install(t), buildBroker(t)
	at, directory := freeport.Address(t), filepath.Join(t.TempDir(), "broker")
	connection := "Endpoint=sb://" + at + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
	var queues []string
	for _, sdk := range []string{"go", "js", "python"} {
		queues = append(queues, "{name: killed-"+sdk+", requiresSession: true, requiresDuplicateDetection: true, lockDuration: 5s}")
	}
	env := []string{"OVERDUE_BROKER_QUEUES=[" + strings.Join(queues, ", ") + "]", "OVERDUE_BROKER_DIRECTORY=" + directory}
	start := func() *process {
		return begin(t, program, env, "broker", "--broker-listen", at, "--listen-admin", "127.0.0.1:0")
	}
	b := start()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	books := []*book{newBook("go")}
	ended := []func(){inGo(ctx, connection, books[0])}
	for sdk, command := range killed {
		k := newBook(sdk)
		books = append(books, k)
		ended = append(ended, runApp(t, command(t.Context(), installed[sdk], t.TempDir()), connection, k))
	}
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for round := range *kills + 1 {
		for _, k := range books {
			k.awaitProgress(t, round)
		}
		if round == *kills {
			break
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		b.kill()
		b = start()
		for _, k := range books {
			k.beginRound()
		}
	}
	stop()
	for _, f := range ended {
		f()
	}
	for _, k := range books {
		k.close(t, connection)
	}
	b.stop()
}

// kill ends the process at once.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.said
	_ = p.cmd.Wait() // it was killed
}

// runApp runs an app, and returns a function that waits for its end.
func runApp(t *testing.T, app *exec.Cmd, connection string, k *book) (end func()) {
	t.Helper()
	app.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+connection)
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("the app with the SDK of %s complains (%v):\n%s", k.sdk, err, tail(text, 4<<10))
		}
		_ = said.Close() // it was only written by the app
	})
	app.Stderr = said
	stdin, err := app.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := app.StdoutPipe()
	if err == nil {
		err = app.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			k.note(in.Text())
		}
	}()
	return func() {
		_ = stdin.Close() // which tells the app
		<-read
		if err := app.Wait(); err != nil {
			t.Errorf("the app with the SDK of %s ended with %v", k.sdk, err)
		}
	}
}

// inGo is killed.js in Go.
func inGo(ctx context.Context, connection string, k *book) (end func()) {
	again := func(work func(*azservicebus.Client) error) {
		for ctx.Err() == nil {
			client, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{
				RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
			})
			if err == nil {
				_ = work(client) // nobody listens, or the connection is cut
				closing, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				_ = client.Close(closing) // likewise
				done()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	var all sync.WaitGroup
	for _, session := range []string{"a", "b"} {
		n := 1
		all.Go(func() {
			again(func(client *azservicebus.Client) error {
				sender, err := client.NewSender("killed-go", nil)
				for err == nil {
					id, text := fmt.Sprint(session, "-", n), fmt.Sprint(session, " ", n)
					message := &azservicebus.Message{MessageID: &id, SessionID: &session, Body: []byte(text)}
					if err = sender.SendMessage(ctx, message, nil); err == nil {
						k.note("sent " + text)
						n++
					}
					for wait := true; wait; wait = n > k.latestOf(session)+killedAhead && ctx.Err() == nil {
						time.Sleep(10 * time.Millisecond)
					}
				}
				return err
			})
		})
		all.Go(func() {
			again(func(client *azservicebus.Client) error {
				receiver, err := client.AcceptSessionForQueue(ctx, "killed-go", session, nil)
				for err == nil {
					var got []*azservicebus.ReceivedMessage
					got, err = receiver.ReceiveMessages(ctx, 1, nil)
					for _, m := range got {
						k.note(fmt.Sprintf("got %s %d", m.Body, *m.SequenceNumber))
						if err = receiver.CompleteMessage(ctx, m, nil); err == nil {
							k.note(fmt.Sprintf("done %s", m.Body))
						}
					}
				}
				return err
			})
		})
	}
	return all.Wait
}

// A book has what one app says, and finds what must not be.
type book struct {
	sdk string

	mu       sync.Mutex
	news     chan struct{} // something was sent or done
	sent     map[string]bool
	got      map[string]bool
	done     map[string]bool
	latest   map[string]int   // that was got, by session
	numbers  map[int64]string // who has a sequence number
	counts   map[string]int   // of sent and done in this round
	problems []string
}

func newBook(sdk string) *book {
	return &book{
		sdk:     sdk,
		news:    make(chan struct{}, 1),
		sent:    map[string]bool{},
		got:     map[string]bool{},
		done:    map[string]bool{},
		latest:  map[string]int{},
		numbers: map[int64]string{},
		counts:  map[string]int{},
	}
}

// note takes down a line, see killed.js.
func (k *book) note(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var what, session string
	var n int
	var number int64
	if _, err := fmt.Sscan(line, &what, &session, &n, &number); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		k.problems = append(k.problems, fmt.Sprintf("%q: %v", line, err))
		return
	}
	id := fmt.Sprint(session, " ", n)
	switch what {
	case "sent":
		k.sent[id] = true
	case "got":
		k.takeLocked(id, session, n, number)
	case "done":
		k.done[id] = true
	default:
		k.problems = append(k.problems, fmt.Sprintf("%q says nothing", line))
	}
	k.counts[what]++
	select {
	case k.news <- struct{}{}:
	default: // said already
	}
}

// takeLocked is note for a message that was received.
func (k *book) takeLocked(id, session string, n int, number int64) {
	switch latest := k.latest[session]; {
	case k.done[id]:
		k.problems = append(k.problems, id+" comes again, after its completion was acknowledged")
	case n != latest && n != latest+1:
		k.problems = append(k.problems, fmt.Sprintf("%s comes after %d", id, latest))
	}
	k.got[id] = true
	k.latest[session] = n
	k.ownLocked(number, id)
}

func (k *book) ownLocked(number int64, id string) {
	if before, known := k.numbers[number]; known && before != id {
		k.problems = append(k.problems, fmt.Sprintf("%s has number %d, which %s had", id, number, before))
	}
	k.numbers[number] = id
}

func (k *book) latestOf(session string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest[session]
}

// beginRound forgets what came before the broker was killed.
func (k *book) beginRound() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.counts)
}

// awaitProgress returns when the app has sent and completed something in this round.
func (k *book) awaitProgress(t *testing.T, round int) {
	t.Helper()
	late := time.After(roundTimeout)
	for {
		k.mu.Lock()
		goesOn, counts := k.counts["sent"] > 0 && k.counts["done"] > 0, fmt.Sprint(k.counts)
		k.mu.Unlock()
		if goesOn {
			return
		}
		select {
		case <-k.news:
		case <-late:
			t.Fatalf("round %d: the app with the SDK of %s does not go on: %s", round, k.sdk, counts)
		}
	}
}

// close compares with what the broker has.
func (k *book) close(t *testing.T, connection string) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(t.Context()) }()                                      // it was only read
	receiver, err := client.AcceptSessionForQueue(t.Context(), "killed-"+k.sdk, "a", nil) // it peeks at all sessions
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for from := int64(0); ; {
		page, err := receiver.PeekMessages(t.Context(), 250, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			id := strings.Trim(string(m.Body), `"`) // which the SDK for JavaScript adds
			if left[id] {
				k.problems = append(k.problems, id+" is there twice")
			}
			left[id] = true
			k.ownLocked(*m.SequenceNumber, id)
			from = *m.SequenceNumber + 1
		}
	}
	for id := range k.sent {
		if !left[id] && !k.got[id] {
			k.problems = append(k.problems, id+" is lost")
		}
	}
	for id := range k.done {
		if left[id] {
			k.problems = append(k.problems, id+" is there, after its completion was acknowledged")
		}
	}
	for _, problem := range k.problems[:min(len(k.problems), 10)] {
		t.Errorf("%s: %s", k.sdk, problem)
	}
	if n := len(k.problems); n > 10 {
		t.Errorf("%s: %d problems in all", k.sdk, n)
	}
	t.Logf("%s: %d messages were sent and %d completed, %d are left", k.sdk, len(k.sent), len(k.done), len(left))
}
