// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"overdue/internal/broker/store"
)

// A process that has a directory gives copies of it over a socket in it, to its own user alone: a
// copy has everything that the directory has.
//
//	backup DIR FILE ──POST /backup──▶ DIR/backup.sock ──Store.Backup──▶ tar
//
// The answer is chunked, so that one that is cut short shows.

const (
	socketFile    = "backup.sock"
	backupPath    = "/backup"
	headerTimeout = 10 * time.Second // of a request that has one line
	maxAnswer     = 4 << 10          // of one that is no copy, in bytes
)

func socketOf(dir string) string { return filepath.Join(dir, socketFile) }

// A BackupServer gives copies of an open directory.
type BackupServer struct {
	ln     net.Listener
	server http.Server
}

// NewBackupServer listens in a directory that the caller has open. The socket of an earlier
// process is removed.
func NewBackupServer(dir string, s *store.Store) (*BackupServer, error) {
	path := socketOf(dir)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+backupPath, func(w http.ResponseWriter, _ *http.Request) { answerBackup(w, dir, s) })
	return &BackupServer{
		ln:     ln,
		server: http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
	}, nil
}

// Serve answers until Close.
func (b *BackupServer) Serve() error {
	if err := b.server.Serve(b.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close cuts a copy that is under way. Store.Close waits for what that leaves.
func (b *BackupServer) Close() error { return b.server.Close() }

func answerBackup(w http.ResponseWriter, dir string, s *store.Store) {
	counted := &countingWriter{w: w}
	err := s.Backup(counted)
	switch {
	case err == nil:
	case counted.n == 0:
		http.Error(w, Explain(dir, err).Error(), http.StatusServiceUnavailable)
	default:
		panic(http.ErrAbortHandler) // the caller sees that the copy is cut short
	}
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// askForBackup writes the copy that the process gives which has the directory.
func askForBackup(ctx context.Context, dir string, w io.Writer) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socketOf(dir))
	if err != nil {
		return fmt.Errorf("%s is in use by a process that gives no copies (%w); stop it, and try again: the log of its start says why", dir, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // the read says what is wrong
	defer stop()
	defer func() { _ = c.Close() }() // everything has been read
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://overdue"+backupPath, http.NoBody)
	if err == nil {
		err = request.Write(c)
	}
	if err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // as above
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		if err != nil {
			return err
		}
		return errors.New(strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(w, answer.Body)
	return err
}
