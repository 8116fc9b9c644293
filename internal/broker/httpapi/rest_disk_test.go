// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

func TestRESTRefusesAMessageThatCannotBeRead(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	b, err := broker.New(broker.Config{Disk: disk, Queues: []broker.QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	api := newREST(func(*http.Request) *broker.Namespace { return b.Default() }, restOptions{})
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("body")))
		return w
	}
	if w := ask(http.MethodPost, "/q/messages"); w.Code != http.StatusCreated {
		t.Fatalf("a send: status %d, %s", w.Code, w.Body)
	}
	disk.MakeUnreadable(errors.New("the disk cannot be read"))
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		if w := ask(method, "/q/messages/head"); w.Code != http.StatusInternalServerError {
			t.Errorf("%s: status %d, want %d: %s", method, w.Code, http.StatusInternalServerError, w.Body)
		}
	}
	disk.MakeUnreadable(nil)
	if w := ask(http.MethodDelete, "/q/messages/head"); w.Code != http.StatusOK || w.Body.String() != "body" {
		t.Errorf("once it can be read: status %d, %q", w.Code, w.Body)
	}
}

func TestRESTAnswersWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &brokertest.SlowDisk{}
		b, err := broker.New(broker.Config{Disk: disk, Queues: []broker.QueueConfig{{Name: "q"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		api := newREST(func(*http.Request) *broker.Namespace { return b.Default() }, restOptions{})
		location := ""
		ask := func(method, path string, want int) func() error {
			return func() error {
				w := httptest.NewRecorder()
				api.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("")))
				location = w.Header().Get("Location")
				if w.Code != want {
					return fmt.Errorf("status %d, want %d: %s", w.Code, want, w.Body)
				}
				return nil
			}
		}
		disk.Until(t, "a send", ask(http.MethodPost, "/q/messages", http.StatusCreated))
		disk.Until(t, "a peek-lock", ask(http.MethodPost, "/q/messages/head", http.StatusCreated))
		_, path, _ := strings.Cut(location, "example.com")
		disk.Until(t, "an unlock", ask(http.MethodPut, path, http.StatusOK))
		disk.Until(t, "a receive-and-delete", ask(http.MethodDelete, "/q/messages/head", http.StatusOK))
		disk.Until(t, "another send", ask(http.MethodPost, "/q/messages", http.StatusCreated))
		disk.Until(t, "another peek-lock", ask(http.MethodPost, "/q/messages/head", http.StatusCreated))
		_, path, _ = strings.Cut(location, "example.com")
		disk.Until(t, "a third send", ask(http.MethodPost, "/q/messages", http.StatusCreated))
		// The disk fills up while a message is about to leave.
		refused := make(chan error, 1)
		go func() { refused <- ask(http.MethodDelete, "/q/messages/head", http.StatusForbidden)() }()
		synctest.Wait()
		disk.Fail(queue.ErrNoRoom)
		if err := <-refused; err != nil {
			t.Errorf("a receive-and-delete while the disk fills up: %v", err)
		}
		disk.Steps()
		for what, do := range map[string]func() error{
			"a send":                            ask(http.MethodPost, "/q/messages", http.StatusForbidden),
			"a receive-and-delete":              ask(http.MethodDelete, "/q/messages/head", http.StatusForbidden),
			"an unlock":                         ask(http.MethodPut, path, http.StatusForbidden),
			"a complete":                        ask(http.MethodDelete, path, http.StatusForbidden),
			"the renewal of a lock (no change)": ask(http.MethodPost, path, http.StatusOK),
		} {
			if err := do(); err != nil {
				t.Errorf("%s on a full disk: %v", what, err)
			}
		}
		if alone, held := disk.Steps(); alone+held > 0 {
			t.Errorf("what was refused has taken %d steps", alone+held)
		}
		if q, _ := b.Queue("q"); q.Counts().Active != 2 {
			t.Errorf("the queue has %d messages, want 2", q.Counts().Active)
		}
		if err := ask(http.MethodPost, "/q/messages/head", http.StatusCreated)(); err != nil {
			t.Errorf("a peek-lock on a full disk: %v", err)
		}
		disk.Fail(queue.ErrNotStored)
		if err := ask(http.MethodPost, "/q/messages", http.StatusServiceUnavailable)(); err != nil {
			t.Errorf("a send to a disk that fails: %v", err)
		}
	})
}
