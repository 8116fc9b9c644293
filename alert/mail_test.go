// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cenkalti/backoff/v5"
)

// mailServer accepts mail, or answers as answer says, and returns it.
func mailServer(t *testing.T, answer string) (port int, mails <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	got := make(chan string, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serveMail(c, answer, got)
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port, got
}

func serveMail(c net.Conn, answer string, got chan<- string) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	say := func(s string) { _, _ = fmt.Fprintf(c, "%s\r\n", s) }
	say("220 test")
	var body strings.Builder
	for data := false; ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		switch word, _, _ := strings.Cut(line, " "); {
		case data && line == ".":
			data = false
			got <- body.String()
			say("250 taken")
		case data:
			body.WriteString(line + "\n")
		case word == "DATA":
			data = true
			say("354 go on")
		case word == "RCPT":
			body.WriteString(line + "\n")
			say(answer)
		case word == "QUIT":
			say("221 bye")
			return
		default:
			say("250 test")
		}
	}
}

func TestEmail(t *testing.T) {
	port, mails := mailServer(t, "250 ok")
	a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: "overdue@example.com", To: []string{"a@example.com", "B <b@example.com>"}}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), firing()); err != nil {
		t.Fatal(err)
	}
	got := <-mails
	for _, want := range []string{
		"RCPT TO:<a@example.com>", "RCPT TO:<b@example.com>", "Subject: 3 more missed deadlines on orders", "Auto-Submitted: auto-generated",
		"References: <overdue-k@overdue>", "Namespace: n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the mail lacks %q:\n%s", want, got)
		}
	}
}

func TestADisplayNameMayHaveAComma(t *testing.T) {
	for name, want := range map[string]string{
		`"Overdue, Inc." <o@example.com>`: `"Overdue, Inc." <o@example.com>`,
		`Overdue, Inc. <o@example.com>`:   `"Overdue, Inc." <o@example.com>`,
		`Doe, J (Ops) <o@example.com>`:    `"Doe, J (Ops)" <o@example.com>`,
		`Jörg, X <o@example.com>`:         `=?utf-8?b?SsO2cmcsIFg=?= <o@example.com>`,
		`Overdue <o@example.com>`:         `"Overdue" <o@example.com>`,
		`o@example.com`:                   `<o@example.com>`,
	} {
		port, mails := mailServer(t, "250 ok")
		a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: name, To: []string{name, "b@example.com"}}, Text{})
		if err != nil {
			t.Errorf("NewEmail from %s: %v", name, err)
			continue
		}
		if err := a.Notify(t.Context(), firing()); err != nil {
			t.Fatal(err)
		}
		got := <-mails
		for _, line := range []string{"From: " + want, "To: " + want + ", <b@example.com>", "RCPT TO:<o@example.com>\nRCPT TO:<b@example.com>"} {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("a mail from %s lacks %q:\n%s", name, line, got)
			}
		}
	}
	for _, bad := range []string{"a@example.com, b@example.com", "a@example.com, B <b@example.com>", `"A, B <b@example.com>`, "A, B <b>", "A, B"} {
		if _, err := NewEmail("", EmailConfig{Host: "h", From: "o@example.com", To: []string{bad}}, Text{}); err == nil {
			t.Errorf("%s was taken for one address", bad)
		}
	}
}

func TestEmailErrorsSayWhetherToTryAgain(t *testing.T) {
	for answer, permanent := range map[string]bool{"451 later": false, "550 nobody": true} {
		port, _ := mailServer(t, answer)
		a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: "o@example.com", To: []string{"a@example.com"}}, Text{})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Notify(t.Context(), firing())
		if final := (*backoff.PermanentError)(nil); err == nil || errors.As(err, &final) != permanent {
			t.Errorf("after %q: %v, want it permanent: %v", answer, err, permanent)
		}
	}
	port, _ := mailServer(t, "250 ok")
	a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Username: "u", Password: "hunter2", From: "o@example.com", To: []string{"a@example.com"}}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), firing()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a server without STARTTLS: %v, want an error", err)
	}
	for _, bad := range []EmailConfig{
		{}, {Host: "h", To: []string{"a@example.com"}}, {Host: "h", From: "o@example.com", To: []string{"nobody"}},
		{Host: "h", From: "o@example.com", To: []string{"a@example.com"}, Security: "ssl"},
	} {
		if _, err := NewEmail("", bad, Text{}); err == nil {
			t.Errorf("NewEmail(%+v) has no error", bad)
		}
	}
}

func TestShoutrrrHidesItsURL(t *testing.T) {
	status := http.StatusOK
	var title string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		title = r.Header.Get("Title")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	a, err := NewShoutrrr("", "ntfy://"+host+"/hunter2?scheme=http", Text{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), firing()); err != nil || title != firingTitle {
		t.Errorf("Notification = %v, title %q, want %q", err, title, firingTitle)
	}
	status = http.StatusForbidden
	if err := a.Notify(t.Context(), firing()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Notification = %v, want an error without the topic", err)
	}
	srv.Close()
	if err := a.Notify(t.Context(), firing()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Notification = %v, want an error without the topic", err)
	}
	for _, bad := range []string{"", "hunter2", "smtp://hunter2@hunter2/?from=a@b", "ntfy+https://hunter2/", "nosuch://hunter2@hunter2/hunter2"} {
		if _, err := NewShoutrrr("", bad, Text{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("NewShoutrrr(%q) = %v, want an error without the URL", bad, err)
		}
	}
}

type alerter func(Event)

func (alerter) Name() string { return "alerter" }

func (a alerter) Alert(_ context.Context, e Event) error {
	a(e)
	return nil
}
