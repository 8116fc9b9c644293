// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"overdue/internal/config"
)

// fileSettleTime is between a change and the first read of the files. A second read comes so long
// after the first and has to find the same: editors and deployments write in steps, and not every
// file system sends events.
const fileSettleTime = 200 * time.Millisecond

// A fileWatch reports when the content of some files has changed. It watches their folders: a file
// that is replaced is another one. A cluster mounts a link to a folder that is replaced as a whole.
// A nil one reports nothing.
type fileWatch struct {
	watcher *fsnotify.Watcher
	settled *time.Timer // fires fileSettleTime after something has happened in the folders
	news    wakeup
	done    chan struct{}

	mu      sync.Mutex // guards all below
	files   []string
	digest  [sha256.Size]byte // as last reported
	seen    [sha256.Size]byte // when last read
	folders map[string]bool
}

// watchFiles watches. It has a goroutine of its own, which ends with close.
func watchFiles(files []string) (*fileWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &fileWatch{watcher: watcher, settled: time.NewTimer(fileSettleTime), news: newWakeup(), done: make(chan struct{}), folders: map[string]bool{}}
	if err := w.add(files); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	w.files, w.digest = files, digestOf(files)
	w.seen = w.digest
	go w.run()
	return w, nil
}

// changed gets a value when a file has other content than when it was last reported, or followed.
func (w *fileWatch) changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.news
}

// follow watches these files from now on. If they are others, they are reported once more: a file
// may have changed since it was read. Folders that are not needed any more stay watched; there are
// few.
func (w *fileWatch) follow(files []string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The next SIGHUP reads a file that cannot be watched.
	_ = w.add(files)
	if !slices.Equal(files, w.files) {
		w.files = files
		w.settled.Reset(fileSettleTime)
	}
}

// recheck reports the files once nothing has happened to them for fileSettleTime, changed or not.
func (w *fileWatch) recheck() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.digest, w.seen = [sha256.Size]byte{}, [sha256.Size]byte{}
	w.settled.Reset(fileSettleTime)
}

// add watches the folders of the files, and of what they are links to.
func (w *fileWatch) add(files []string) error {
	var errs []error
	for _, f := range files {
		folders := []string{filepath.Dir(f)}
		if target, err := filepath.EvalSymlinks(f); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
		for _, folder := range folders {
			if w.folders[folder] {
				continue
			}
			if err := w.watcher.Add(folder); err != nil {
				errs = append(errs, fmt.Errorf("watch %s: %w", folder, err))
				continue
			}
			w.folders[folder] = true
		}
	}
	return errors.Join(errs...)
}

// run reads the files a while after the first event. Further ones do not put that off: others may
// write in the folder without a pause, such as a log. That a file is whole, check finds out.
func (w *fileWatch) run() {
	defer close(w.done)
	pending := false
	for {
		ok := true
		select {
		case _, ok = <-w.watcher.Events:
		case _, ok = <-w.watcher.Errors: // events were lost, most likely
		case <-w.settled.C:
			pending = false
			w.check()
			continue
		}
		if !ok {
			return
		}
		if !pending {
			pending = true
			w.settled.Reset(fileSettleTime)
		}
	}
}

// check reports content that is another one, once two reads have found the same.
func (w *fileWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A link that leads elsewhere now leads to a folder that may not be watched yet.
	_ = w.add(w.files) // as in follow
	d := digestOf(w.files)
	if d != w.seen {
		w.seen = d
		w.settled.Reset(fileSettleTime)
		return
	}
	if d == w.digest {
		return
	}
	w.digest = d
	w.news.signal()
}

func (w *fileWatch) close() {
	_ = w.watcher.Close() // nothing is watched any more either way
	<-w.done
}

// digestOf is the same for the same content. A file that cannot be read counts with the reason.
func digestOf(files []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		text, err := config.ReadBounded(f, config.MaxEmulatorConfig)
		fmt.Fprintf(h, "%s\x00%d\x00%v\x00", f, len(text), err) // a hash takes everything
		h.Write(text)
	}
	h.Sum(sum[:0])
	return sum
}
