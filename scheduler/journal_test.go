// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// news are what a journal has told.
type news struct {
	mu     sync.Mutex
	events []string
	errs   []error
}

func (n *news) told(event string, err error, _ scheduler.JournalStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events, n.errs = append(n.events, event), append(n.errs, err)
}

// count is how often something that begins so was told.
func (n *news) count(prefix string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := 0
	for _, e := range n.events {
		if strings.HasPrefix(e, prefix) {
			c++
		}
	}
	return c
}

// journal opens one for s and runs it until stop or the end of the test.
func journal(t *testing.T, s *scheduler.Scheduler, directory string, change ...func(*scheduler.JournalConfig)) (j *scheduler.Journal, stop func()) {
	t.Helper()
	cfg := scheduler.JournalConfig{Scheduler: s, Directory: directory, Namespace: "contoso"}
	for _, f := range change {
		f(&cfg)
	}
	j, err := scheduler.OpenJournal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if err := j.Close(context.Background()); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return j, stop
}

func schedule(t *testing.T, j *scheduler.Journal, c scheduler.Companion) {
	t.Helper()
	if err := j.Begin(c)(t.Context()); err != nil {
		t.Fatalf("companion = %v, want it accepted or kept", err)
	}
}

// ids are the message-ids that the companions on the monitor queue name, in the order in which the broker has
// taken them.
func ids(t *testing.T, ns *brokertest.Namespace) (all []string) {
	t.Helper()
	for _, v := range companions(t, ns) {
		c := parse(t, v)
		for _, r := range c.References {
			all = append(all, r.MessageID)
		}
	}
	return all
}

// What keeps a monitor queue from taking companions, and what ends it.
var outages = map[string]func(*testing.T, *brokertest.Namespace) (end func()){
	"the network is cut": func(_ *testing.T, ns *brokertest.Namespace) func() {
		ns.Net.Refuse(true)
		ns.Net.Cut()
		return func() { ns.Net.Refuse(false) }
	},
	"the network is silent": func(_ *testing.T, ns *brokertest.Namespace) func() {
		ns.Net.Stall(pipenet.Both)
		return func() { ns.Net.Resume(pipenet.Both) }
	},
	"the queue is full": func(_ *testing.T, ns *brokertest.Namespace) func() {
		return ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	},
	"the namespace throttles": func(_ *testing.T, ns *brokertest.Namespace) func() {
		return ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.ServerBusy()})
	},
	"the queue is deleted": func(t *testing.T, ns *brokertest.Namespace) func() {
		if err := ns.Broker.Default().DeleteQueue(monitorQueue); err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := ns.Broker.Default().CreateQueue(broker.QueueConfig{Name: monitorQueue}); err != nil {
				t.Error(err)
			}
		}
	},
}

func TestCompanionsWaitOnDiskForTheMonitorQueue(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				var n news
				j, _ := journal(t, s, directory, func(c *scheduler.JournalConfig) { c.Told = n.told })
				schedule(t, j, one("before", time.Now().Add(time.Hour)))
				if st := j.Status(); st.Companions != 0 || st.Down != nil {
					t.Errorf("status %+v with the monitor queue up, want nothing kept", st)
				}
				end := begin(t, ns)
				began := time.Now()
				schedule(t, j, one("first", time.Now().Add(2*time.Hour)))
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("the first companion of the outage took %v, want 5s at most", took)
				}
				for i := range 50 {
					began = time.Now()
					schedule(t, j, one(fmt.Sprint("m-", i), time.Now().Add(time.Duration(i+1)*time.Minute)))
					if took := time.Since(began); took > 0 {
						t.Fatalf("a companion took %v with the monitor queue known to be down, want no wait", took)
					}
				}
				if st := j.Status(); st.Companions < 51 || st.Down == nil {
					t.Errorf("status %+v in the outage, want 51 companions and what is wrong", st)
				}
				time.Sleep(10 * time.Minute)
				if got := n.count("monitor queue is down"); got != 1 {
					t.Errorf("the outage was told %d times, want once: %q", got, n.events)
				}
				end()
				time.Sleep(time.Minute)
				if st := j.Status(); st.Companions != 0 || st.Down != nil {
					t.Errorf("status %+v a minute after the outage, want an empty journal", st)
				}
				for _, want := range []string{"monitor queue is back", "journal is empty"} {
					if got := n.count(want); got != 1 {
						t.Errorf("%q was told %d times, want once: %q", want, got, n.events)
					}
				}
				seen := map[string]bool{}
				for _, id := range ids(t, ns) {
					seen[id] = true
				}
				for i := range 50 {
					if !seen[fmt.Sprint("m-", i)] {
						t.Errorf("the monitor queue has no companion for m-%d", i)
					}
				}
				if !seen["first"] {
					t.Error("the monitor queue has no companion for the first send of the outage")
				}
				began = time.Now()
				schedule(t, j, one("after", time.Now().Add(time.Hour)))
				if st, took := j.Status(), time.Since(began); st.Companions != 0 || took > time.Second {
					t.Errorf("status %+v and %v after a companion that the monitor queue took, want nothing kept and no wait", st, took)
				}
			})
		})
	}
}

// What is due first is written first; what became due meanwhile rings at once.
func TestJournalIsWrittenInTheOrderOfDeadlines(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		for _, minutes := range []int{50, 10, 40, 1, 30, 20} {
			schedule(t, j, one(fmt.Sprint(minutes), time.Now().Add(time.Duration(minutes)*time.Minute)))
		}
		time.Sleep(5 * time.Minute)
		end()
		time.Sleep(time.Minute)
		if got, want := strings.Join(ids(t, ns), " "), "1 10 20 30 40 50"; got != want {
			t.Errorf("companions were written as %s, want %s", got, want)
		}
		for _, v := range companions(t, ns) {
			if want := queue.Scheduled; parse(t, v).References[0].MessageID == "1" && v.State != queue.Active {
				t.Errorf("the companion whose deadline has passed is %v, want %v", v.State, queue.Active)
			} else if v.State != want && parse(t, v).References[0].MessageID != "1" {
				t.Errorf("a companion that is not due is %v, want %v", v.State, want)
			}
		}
	})
}

// A monitor queue that has just come back gets the journal in batches, and not all at once.
func TestJournalIsWrittenAtABoundedPace(t *testing.T) {
	directory := t.TempDir()
	var mu sync.Mutex
	var batches []int
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("first", time.Now().Add(time.Hour)))
		var wg sync.WaitGroup
		for i := range 3000 {
			wg.Go(func() { schedule(t, j, one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Second))) })
		}
		wg.Wait()
		end()
		time.Sleep(7 * time.Second) // a pause of 5 s at most
		mu.Lock()
		defer mu.Unlock()
		most, sum := 0, 0
		for _, n := range batches {
			most, sum = max(most, n), sum+n
		}
		if most > 100 || sum == 0 || sum > 7*1000+1 {
			t.Errorf("%d companions in batches of up to %d within 7s, want some, and 1,000 a second in batches of 100 at most", sum, most)
		}
		time.Sleep(10 * time.Second)
		if st := j.Status(); st.Companions != 0 {
			t.Errorf("%d companions are left, want none", st.Companions)
		}
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(n int, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				batches = append(batches, n)
			}
		}
	})
}

func TestAFullJournalRefuses(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, _ := journal(t, s, directory, func(c *scheduler.JournalConfig) { c.MaxSize, c.Told = 2000, n.told })
		end := outages["the queue is full"](t, ns)
		var err error
		kept := 0
		for i := 0; err == nil && i < 100; i++ {
			if err = j.Begin(one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Minute)))(t.Context()); err == nil {
				kept++
			}
		}
		if err == nil || !strings.Contains(err.Error(), "overdue.journal") || !strings.Contains(err.Error(), "it is full") || kept < 3 {
			t.Fatalf("%d were kept in 2,000 bytes, then %v; want some, then a sentence that says the journal is full", kept, err)
		}
		_ = j.Begin(one("more", time.Now().Add(time.Hour)))(t.Context()) // refused as well
		if got := n.count("journal takes no companions"); got != 1 {
			t.Errorf("the full journal was told %d times, want once: %q", got, n.events)
		}
		if st := j.Status(); st.Refusing == nil || st.Bytes > 2000 {
			t.Errorf("status %+v, want at most 2,000 bytes and why it refuses", st)
		}
		end()
		time.Sleep(time.Minute)
		if got := len(ids(t, ns)); got != kept {
			t.Errorf("the monitor queue has %d companions, want the %d that were kept", got, kept)
		}
		end = outages["the queue is full"](t, ns)
		schedule(t, j, one("later", time.Now().Add(time.Hour)))
		if got := n.count("journal takes companions again"); got != 1 {
			t.Errorf("that there is room again was told %d times, want once: %q", got, n.events)
		}
		end()
	})
}

// A companion that is refused while the journal is empty has nobody who would ask the monitor queue, so the next
// send does.
func TestAJournalThatTakesNothingDoesNotHideThatTheQueueIsBack(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, _ := journal(t, s, directory, func(c *scheduler.JournalConfig) { c.MaxSize, c.Told = 10, n.told })
		end := outages["the queue is full"](t, ns)
		for range 3 {
			if err := j.Begin(one("m", time.Now().Add(time.Hour)))(t.Context()); err == nil {
				t.Error("a companion that nobody takes = nil, want an error")
			}
		}
		end()
		schedule(t, j, one("m", time.Now().Add(time.Hour)))
		if st := j.Status(); st.Down != nil {
			t.Errorf("status %+v, want the monitor queue up", st)
		}
		if down, back := n.count("monitor queue is down"), n.count("monitor queue is back"); down != 1 || back != 1 {
			t.Errorf("told %q, want once down and once back", n.events)
		}
	})
}

func TestAJournalOutlivesItsProcess(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("mine", time.Now().Add(time.Hour)))
		stop()

		_, stop = journal(t, s, directory, func(c *scheduler.JournalConfig) { c.Namespace = "fabrikam" })
		other, err := scheduler.OpenJournal(scheduler.JournalConfig{Scheduler: s, Directory: directory, Namespace: "contoso"})
		if err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a journal that is open elsewhere = %v, %v; want an error that says so", other, err)
		}
		end()
		time.Sleep(time.Minute)
		if got := ids(t, ns); len(got) != 0 {
			t.Errorf("another namespace's journal has written %q, want nothing", got)
		}
		stop()

		end = outages["the queue is full"](t, ns) // it would be written before anybody looks
		j, _ = journal(t, s, directory, func(c *scheduler.JournalConfig) { c.Namespace, c.MustExist = "CONTOSO", true })
		if st := j.Status(); st.Companions != 1 || st.Elsewhere != 0 {
			t.Errorf("status %+v after the start, want the one companion", st)
		}
		end()
		time.Sleep(time.Minute)
		if got := ids(t, ns); len(got) != 1 || got[0] != "mine" {
			t.Errorf("the monitor queue has companions for %q, want mine", got)
		}
	})
}

func TestCompanionsOfAnotherNamespaceAreCountedAndKept(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("m", time.Now().Add(time.Hour)))
		end()
		stop()
		j, _ = journal(t, s, directory, func(c *scheduler.JournalConfig) { c.Namespace = "fabrikam" })
		if st := j.Status(); st.Companions != 0 || st.Elsewhere != 1 {
			t.Errorf("status %+v, want one companion elsewhere", st)
		}
	})
}

func TestAJournalThatCannotBeOpenedSaysWhy(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		for name, test := range map[string]struct {
			prepare func(t *testing.T, file string)
			want    string
		}{
			"garbage": {func(t *testing.T, file string) { write(t, file, strings.Repeat("garbage ", 4096)) }, "move it away"},
			"short":   {func(t *testing.T, file string) { write(t, file, "x") }, "move it away"},
			"no directory can be made": {func(t *testing.T, file string) {
				if err := os.Remove(filepath.Dir(file)); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Dir(file), "a file")
			}, "directory cannot be made"},
			"a directory in its place": {func(t *testing.T, file string) {
				if err := os.Mkdir(file, 0o700); err != nil {
					t.Fatal(err)
				}
			}, "is a directory"},
		} {
			directory := filepath.Join(t.TempDir(), "journal")
			if err := os.Mkdir(directory, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(directory, "overdue.journal")
			test.prepare(t, file)
			_, err := scheduler.OpenJournal(scheduler.JournalConfig{Scheduler: s, Directory: directory, Namespace: "contoso"})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: OpenJournal = %v, want one sentence with %q", name, err, test.want)
			}
		}
		if _, err := scheduler.OpenJournal(scheduler.JournalConfig{Scheduler: s, Directory: t.TempDir(), Namespace: "contoso", MustExist: true}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("OpenJournal where there is none = %v, want ErrNotExist", err)
		}
	})
}

// A file that lost its end, or in which bytes have turned, is told when it is opened, and stays as it is.
func TestADamagedJournalIsToldAndLeftAsItIs(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "overdue.journal")
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		var wg sync.WaitGroup
		schedule(t, j, one("first", time.Now().Add(time.Hour)))
		for i := range 500 {
			wg.Go(func() { schedule(t, j, one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Second))) })
		}
		wg.Wait()
		stop()
		end()
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		open := func(content []byte) error {
			directory := t.TempDir() // a file that the library has panicked over stays locked as long as the process lives
			file := filepath.Join(directory, "overdue.journal")
			write(t, file, string(content))
			j, err := scheduler.OpenJournal(scheduler.JournalConfig{Scheduler: s, Directory: directory, Namespace: "contoso"})
			if err == nil {
				err = j.Close(t.Context())
			} else if after, readErr := os.ReadFile(file); readErr != nil || string(after) != string(content) {
				t.Errorf("the damaged file was changed, want it as it was (%v)", readErr)
			}
			return err
		}
		if err := open(whole); err != nil {
			t.Fatalf("the file as it was = %v, want nil", err)
		}
		half := len(whole) / 2 &^ 4095
		if err := open(whole[:half]); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("half of the file = %v, want a sentence", err)
		}
		at := strings.LastIndex(string(whole), `"messageId":"`)
		turned := []byte(string(whole))
		for at >= 0 { // every copy of one companion: which of them counts is the library's
			turned[at+5] ^= 1
			at = strings.LastIndex(string(turned[:at]), `"messageId":"`)
		}
		if err := open(turned); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("a file with bytes turned = %v, want a sentence", err)
		}
	})
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// parse reads a companion as the broker holds it.
func parse(t *testing.T, v queue.View) scheduler.Companion {
	t.Helper()
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		t.Fatal(err)
	}
	for body, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := scheduler.ParseCompanion(body)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatal("a companion has no body")
	return scheduler.Companion{}
}

// A companion that the monitor queue can never take, because it is a smaller one now, keeps none of the others waiting.
func TestACompanionThatIsTooLargeStaysInTheJournal(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := journal(t, s, directory)
		end := outages["the queue is full"](t, ns)
		large := one("large", time.Now().Add(time.Hour))
		for i := range 99 {
			large.References = append(large.References, scheduler.Reference{MessageID: fmt.Sprint("large-", i), Deadline: large.References[0].Deadline, Stated: "ttl"})
		}
		schedule(t, j, large)
		schedule(t, j, one("small", time.Now().Add(2*time.Hour)))
		stop()
		end()
	})
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, _ := journal(t, s, directory, func(c *scheduler.JournalConfig) { c.Told = n.told })
		time.Sleep(time.Minute)
		if got := ids(t, ns); len(got) != 1 || got[0] != "small" {
			t.Errorf("the monitor queue has companions for %q, want small", got)
		}
		if st := j.Status(); st.Companions != 1 || st.Down != nil {
			t.Errorf("status %+v, want the large companion kept and the queue up", st)
		}
		if got := n.count("companion is too large"); got != 1 {
			t.Errorf("the large companion was told %d times in a minute, want once: %q", got, n.events)
		}
	}, func(c *broker.Config, _ *scheduler.Config) { c.MaxMessageSize = 4096 })
}
