// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
)

// update writes the directory again, after a change of records that no release has:
//
//	go test ./internal/broker -run TestADirectoryOfAnEarlierBuildIsOpened -update
var update = flag.Bool("update", false, "write testdata again")

const (
	earlierDirectory = "testdata/directory.tar"  // as an earlier build has written it
	earlierState     = "testdata/directory.json" // what that build had then
)

// A state is what a broker has.
type state struct {
	Messages map[string]found
	Counts   map[string]queue.Counts // without sizes, which are those of a build
}

func stateOf(b *broker.Broker) state {
	s := state{messagesOf(b), countsOf(b)}
	for path, c := range s.Counts {
		c.Size = 0
		s.Counts[path] = c
	}
	return s
}

// The directory has a message of every kind. Fake time begins when it was written.
func TestADirectoryOfAnEarlierBuildIsOpened(t *testing.T) {
	if *update {
		synctest.Test(t, writeEarlierDirectory)
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, unpack(earlierDirectory, dir))
		text, err := os.ReadFile(earlierState)
		must(t, err)
		var want state
		must(t, json.Unmarshal(text, &want))
		disk, err := store.Open(dir)
		must(t, err)
		defer disk.Close()
		again := newScene(t, disk, shop)
		if diff := cmp.Diff(want, stateOf(again.ns.Broker)); diff != "" {
			t.Errorf("of the directory of an earlier build there is (-want +got):\n%s", diff)
		}
		if got := again.ns.Broker.Differences(); len(got) > 0 {
			t.Errorf("Differences = %q, want none", got)
		}
		again.goOn(want.Messages)
		must(t, again.ns.Broker.Close()) // before its disk
	})
}

// writeEarlierDirectory writes what this build keeps, and what it has. A restart in between moves
// all that came before out of Pebble's log.
func writeEarlierDirectory(t *testing.T) {
	dir := t.TempDir()
	disk, err := store.Open(dir)
	must(t, err)
	first := newScene(t, disk, shop)
	first.fill()
	must(t, first.ns.Broker.Close())
	must(t, disk.Close())

	disk, err = store.Open(dir)
	must(t, err)
	second := newScene(t, disk, shop)
	second.receive("orders", 1, nil) // and keeps the lock
	second.send("parts", nil, "part 4")
	want := stateOf(second.ns.Broker)
	older := want.Messages["locked in orders"]
	older.DeliveryCount++
	want.Messages["locked in orders"] = older
	text, err := json.MarshalIndent(want, "", "\t")
	must(t, err)
	must(t, second.ns.Broker.Close()) // before its disk
	must(t, disk.Close())             // which has no numbers reserved then, unlike a backup
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must(t, w.AddFS(os.DirFS(dir)))
	must(t, w.Close())
	must(t, os.MkdirAll(filepath.Dir(earlierDirectory), 0o755))
	must(t, os.WriteFile(earlierDirectory, archive.Bytes(), 0o644))
	must(t, os.WriteFile(earlierState, append(text, '\n'), 0o644))
}

// unpack unpacks a copy of a directory, as tar -x does.
func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var data []byte
			data, err = io.ReadAll(r)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
		}
		if err != nil {
			return err
		}
	}
}
