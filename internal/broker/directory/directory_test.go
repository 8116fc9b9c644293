// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
)

type nobody struct{}

func (nobody) Committed(int, time.Duration) {}
func (nobody) Troubled(error)               {}

// open opens a directory until the test ends.
func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := Open(t.Context(), dir, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryThatCannotBeOpenedIsOneSentence(t *testing.T) {
	for name, scene := range map[string]struct {
		dir       string // below a directory of the test
		spoil     func(t *testing.T, dir string)
		want      string
		misplaced bool
	}{
		"held": {
			spoil: func(t *testing.T, dir string) { open(t, dir) },
			want:  "DIR is in use by another process; stop that one, or choose another directory",
		},
		"newer": {
			spoil: func(t *testing.T, dir string) { write(t, dir+"/OVERDUE", "overdue broker directory, version 99\n") },
			want:  "DIR was written by a later version of Overdue; run that version, or restore a backup of this one",
		},
		"foreign": {
			spoil:     func(t *testing.T, dir string) { write(t, dir+"/photo.jpg", "") },
			want:      "DIR has files of something else (photo.jpg); choose an empty directory, or one that Overdue has written",
			misplaced: true,
		},
		"damaged": {
			spoil: func(t *testing.T, dir string) { write(t, dir+"/OVERDUE", "hello\n") },
			want:  "DIR is damaged (OVERDUE cannot be read); restore a backup into an empty directory; `overdue broker check` shows what can be read",
		},
		"a file": {
			dir:       "/file",
			spoil:     func(t *testing.T, dir string) { write(t, dir, "") },
			want:      "DIR is a file or lies below one; choose a directory",
			misplaced: true,
		},
		"below a file": {
			dir:       "/file/data",
			spoil:     func(t *testing.T, dir string) { write(t, filepath.Dir(dir), "") },
			want:      "DIR is a file or lies below one; choose a directory",
			misplaced: true,
		},
		"nothing above": {
			dir:       "/volume/data",
			spoil:     func(*testing.T, string) {},
			want:      "DIR cannot be made because UP does not exist; mount its volume, or make that directory",
			misplaced: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + scene.dir
			scene.spoil(t, dir)
			before := namesBelow(t, filepath.Dir(dir))
			s, err := Open(t.Context(), dir, nobody{})
			if err == nil {
				t.Fatal("Open succeeds", s.Close())
			}
			got := strings.NewReplacer(dir, "DIR", filepath.Dir(dir), "UP").Replace(err.Error())
			if got != scene.want || IsMisplaced(err) != scene.misplaced {
				t.Errorf("Open = %s (misplaced: %v), want %s (%v)", got, IsMisplaced(err), scene.want, scene.misplaced)
			}
			if diff := cmp.Diff(before, namesBelow(t, filepath.Dir(dir))); diff != "" {
				t.Errorf("something was touched (-before +after):\n%s", diff)
			}
			if s := Examine(dir); (s.Err == nil) != s.Held {
				t.Errorf("Examine = %+v, want an error unless a process has it", s)
			}
		})
	}
}

// namesBelow are the files and directories below one, with their sizes.
func namesBelow(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	names := map[string]int64{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			names[path] = info.Size()
		}
		return nil // of a place that is not there
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestStatesOfADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	look := func(want State) {
		t.Helper()
		got := Examine(dir)
		if got.Free == 0 {
			t.Error("its disk has no room")
		}
		got.Free = 0
		if got != want {
			t.Errorf("Examine = %+v, want %+v", got, want)
		}
	}
	look(State{})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	look(State{Made: true})
	s, err := Open(t.Context(), dir, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	look(State{Made: true, Written: true, Held: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look(State{Made: true, Written: true})
}

// brokerOn runs a broker on a directory. stop ends it.
func brokerOn(t *testing.T, dir string) (b *broker.Broker, stop func()) {
	t.Helper()
	s, err := Open(t.Context(), dir, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	b, err = broker.New(broker.Config{
		Disk:   s,
		Queues: []broker.QueueConfig{{Name: "orders"}},
		Topics: []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, func() {
		if err := errors.Join(b.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckCountsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	b, stop := brokerOn(t, dir)
	q, _ := b.Queue("orders")
	body := []byte("0123456789")
	now := b.Now()
	for _, m := range []queue.Message{
		{Body: body},
		{Body: body},
		{Body: body, ScheduledEnqueueTime: now.Add(time.Hour)},
	} {
		if _, err := q.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Check(dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("Check of a directory in use = %v, want %v", err, store.ErrLocked)
	}
	stop()
	got, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes == 0 {
		t.Error("the directory takes no room")
	}
	orders := Entity{Active: 2, Scheduled: 1, Bytes: 30}
	want := &Contents{
		Directory: dir,
		Bytes:     got.Bytes,
		Total:     orders,
		Entities:  []Entity{{Path: "events"}, {Path: "orders", Active: 2, Scheduled: 1, Bytes: 30}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Check (-want +got):\n%s", diff)
	}
}

// A start waits for room on a full disk, and somebody ends the process.
func TestOpenThatWaitsEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	room, closed := make(chan struct{}), make(chan error, 1)
	s, err := openWithin(ctx, func() (*store.Store, error) {
		cancel(stopped)
		<-room
		return store.Open(dir)
	})
	if !errors.Is(err, stopped) {
		t.Fatalf("openWithin = %v, %v, want the end of its context", s, err)
	}
	close(room)
	go func() { // what is opened too late is closed, so that somebody else can have it
		for {
			later, err := store.Open(dir)
			if err == nil {
				closed <- later.Close()
				return
			}
			if !errors.Is(err, store.ErrLocked) {
				closed <- err
				return
			}
		}
	}()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCheckFindsDamage(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	s.PutEntity(1, []byte("no description"))
	if err := errors.Join(wait(s), s.Close()); err != nil {
		t.Fatal(err)
	}
	c, err := Check(dir)
	if !errors.Is(err, store.ErrDamaged) || c == nil || !strings.Contains(err.Error(), "is damaged (entity 1: ") {
		t.Errorf("Check = %v, %v, want a sentence about entity 1", c, err)
	}
}

func TestBackupAsksTheProcessThatHasTheDirectory(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "copy.tar")
	s := open(t, dir)
	if _, err := Backup(t.Context(), dir, file); err == nil || !strings.Contains(err.Error(), "gives no copies") {
		t.Errorf("Backup without a server = %v", err)
	}
	b, err := NewBackupServer(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Serve() }()
	info, err := os.Stat(filepath.Join(dir, socketFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v (%v), want it for its user alone", info, err)
	}
	size, err := Backup(t.Context(), dir, file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(file); err != nil || info.Size() != size || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v (%v), want %d bytes for its user alone", info, err, size)
	}
	if names := namesBelow(t, filepath.Dir(file)); len(names) != 1 {
		t.Errorf("beside the copy there is something: %v", names)
	}
	if err := errors.Join(b.Close(), <-ended); err != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// A copy that ends early is an error, and an earlier copy stays.
func TestBackupThatIsCutShortIsNoCopy(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "copy.tar")
	s := open(t, dir)
	write(t, file, "an earlier copy")
	b, err := NewBackupServer(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Serve() }()
	s.PutEntity(1, make([]byte, 16<<20)) // more than a socket holds
	if err := wait(s); err != nil {
		t.Fatal(err)
	}
	err = askForBackup(t.Context(), dir, writerFunc(func(part []byte) (int, error) { return len(part), b.Close() }))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a copy that ends early = %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Backup(t.Context(), dir, file); err == nil {
		t.Error("Backup succeeds without a server")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "an earlier copy" {
		t.Errorf("the earlier copy is %.40q (%v)", text, err)
	}
	if names := namesBelow(t, filepath.Dir(file)); len(names) != 1 {
		t.Errorf("the failed copy has left something: %v", names)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestOneBackupAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.PutEntity(1, make([]byte, 1<<20))
	if err := wait(s); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	first := make(chan error, 1)
	go func() { first <- s.Backup(w) }()
	if _, err := io.CopyN(io.Discard, r, 1); err != nil { // the first is under way
		t.Fatal(err)
	}
	if err := Explain(dir, s.Backup(io.Discard)); !errors.Is(err, store.ErrCopying) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a second backup = %v, want %v and what to do", err, store.ErrCopying)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // until the first ends
	if err := errors.Join(<-first, w.Close()); err != nil {
		t.Error(err)
	}
}

// wait returns when everything is on disk that was appended before.
func wait(s *store.Store) error {
	done := make(chan error, 1)
	s.After(func(err error) { done <- err })
	return <-done
}
