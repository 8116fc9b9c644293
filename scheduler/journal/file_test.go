// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

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
			}, "directory cannot be created"},
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
			_, err := journal.Open(journal.Config{Scheduler: s, Directory: directory, Namespace: "contoso"})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: Open = %v, want one sentence with %q", name, err, test.want)
			}
		}
		if _, err := journal.Open(journal.Config{Scheduler: s, Directory: t.TempDir(), Namespace: "contoso", MustExist: true}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Open where there is none = %v, want ErrNotExist", err)
		}
	})
}

// A file that lost its end, or in which bytes have turned, is reported when it is opened, and stays as
// it is.
func TestADamagedJournalIsReportedAndLeftAsItIs(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "overdue.journal")
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := start(t, s, directory)
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
			j, err := journal.Open(journal.Config{Scheduler: s, Directory: directory, Namespace: "contoso"})
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

func TestAJournalOutlivesItsProcess(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("mine", time.Now().Add(time.Hour)))
		stop()

		_, stop = start(t, s, directory, func(c *journal.Config) { c.Namespace = "fabrikam" })
		other, err := journal.Open(journal.Config{Scheduler: s, Directory: directory, Namespace: "contoso"})
		if err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a journal that is open elsewhere = %v, %v; want an error that says so", other, err)
		}
		end()
		time.Sleep(time.Minute)
		if got := ids(t, ns); len(got) != 0 {
			t.Errorf("another namespace's journal has written %q, want nothing", got)
		}
		stop()

		end = outages["the queue is full"](t, ns) // it would be written before the check
		j, _ = start(t, s, directory, func(c *journal.Config) { c.Namespace, c.MustExist = "CONTOSO", true })
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
		j, stop := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("m", time.Now().Add(time.Hour)))
		stop()
		end() // not before: the journal would write the companion while it stops
		j, _ = start(t, s, directory, func(c *journal.Config) { c.Namespace = "fabrikam" })
		if st := j.Status(); st.Companions != 0 || st.Elsewhere != 1 {
			t.Errorf("status %+v, want one companion elsewhere", st)
		}
	})
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
