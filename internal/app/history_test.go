// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/config"
)

// A history that cannot be opened fails no start and says so in one line.
func TestAProcessStartsWithoutItsHistory(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(folder, "used")
	startTest(t, "history: {directory: "+used+"}\n")
	for name, tc := range map[string]struct {
		text, say string
		status    int
	}{
		"a directory of its own": {"history: {directory: " + filepath.Join(folder, "a", "b") + "}\n", "", http.StatusOK},
		"off":                    {"history: {enabled: false, directory: " + filepath.Join(folder, "off") + "}\n", "", http.StatusServiceUnavailable},
		"a file in its place":    {"history: {directory: " + file + "}\n", "not a directory", http.StatusServiceUnavailable},
		"no place for files":     {"history: {directory: /proc/overdue}\n", "/proc/overdue", http.StatusServiceUnavailable},
		"used by another":        {"history: {directory: " + used + "}\n", "in use by another process", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			c, err := loadText(t, tc.text, map[string]string{
				"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Start(t.Context(), config.RoleRun, c, zap.New(core), zap.NewAtomicLevel())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Stop(); err != nil {
					t.Errorf("stop: %v", err)
				}
			}()
			if status, body := askAdmin(p.admin, "GET", "/history/missed", ""); status != tc.status {
				t.Errorf("GET /history/missed = %d %s, want %d", status, body, tc.status)
			}
			lines := logs.FilterMessage("history is off").All()
			switch {
			case tc.say == "" && len(lines) == 0:
			case len(lines) != 1 || !strings.Contains(lines[0].ContextMap()["error"].(string), tc.say):
				t.Errorf("logged %v, want one line with %q", lines, tc.say)
			}
			if _, err := os.Stat(filepath.Join(folder, "off")); err == nil {
				t.Error("a history that is off has a directory")
			}
		})
	}
}

// Notifications from before a restart are on the admin port after it.
func TestNotificationsSurviveARestart(t *testing.T) {
	text := "history: {directory: " + t.TempDir() + "}\nbroker: {autoCreate: true}\n"
	start := func() *Process {
		c, err := loadText(t, text, map[string]string{
			"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start()
	eventually(t, "the process is ready", func() bool { status, _ := askAdmin(p.admin, "GET", "/readyz", ""); return status == http.StatusOK })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/orders/messages", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("BrokerProperties", `{"MessageId":"m-1","TimeToLive":0.1}`)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	notified := func(p *Process) string {
		_, body := askAdmin(p.admin, "GET", "/notifications?message-id=m-1", "")
		return body
	}
	eventually(t, "the deadline is missed", func() bool { return strings.Contains(notified(p), "TTLExpiredException") })
	before := notified(p)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	p = start()
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if after := notified(p); after != before || !strings.Contains(after, `"takenBy"`) {
		t.Errorf("after the restart %s, want %s", after, before)
	}
}

// A damaged file is set aside, which is one line too.
func TestAProcessSetsADamagedHistoryAside(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "history.db"), []byte(strings.Repeat("damaged", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startTest(t, "history: {directory: "+folder+"}\n")
	if status, body := askAdmin(p.admin, "GET", "/history/missed", ""); status != http.StatusOK || strings.TrimSpace(body) != "[]" {
		t.Errorf("GET /history/missed = %d %s, want an empty list", status, body)
	}
	if _, err := os.Stat(filepath.Join(folder, "history.damaged.db")); err != nil {
		t.Error(err)
	}
}

func TestWhereTheHistoryIs(t *testing.T) {
	state, missing := t.TempDir(), filepath.Join(t.TempDir(), "missing")
	for name, tc := range map[string]struct {
		env         map[string]string
		stateFolder string
		want        string
	}{
		"nowhere":          {stateFolder: missing},
		"in the image":     {stateFolder: state, want: filepath.Join(state, "history")},
		"as systemd says":  {map[string]string{"STATE_DIRECTORY": "/s/overdue:/s/other", "OVERDUE_JOURNAL_DIRECTORY": "/j", "OVERDUE_ON_MONITOR_DOWN": "pass"}, state, "/s/overdue/history"},
		"with the journal": {map[string]string{"OVERDUE_JOURNAL_DIRECTORY": "/j", "OVERDUE_ON_MONITOR_DOWN": "pass"}, state, "/j/history"},
		"a journal of old": {map[string]string{"OVERDUE_JOURNAL_DIRECTORY": "/j"}, missing, ""},
		"as set":           {map[string]string{"STATE_DIRECTORY": "/s", "OVERDUE_HISTORY_DIRECTORY": "/h"}, state, "/h"},
		"off":              {map[string]string{"STATE_DIRECTORY": "/s", "OVERDUE_HISTORY_DIRECTORY": "/h", "OVERDUE_HISTORY_ENABLED": "false"}, state, ""},
	} {
		c, err := loadText(t, "", tc.env, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := historyDirectory(c, tc.stateFolder); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
