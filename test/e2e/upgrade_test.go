// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	past "overdue/internal/history"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
)

// Processes of the previous version and of this one work with one broker while apps send and
// receive. The previous proxy runs with this monitor, and this proxy with the previous monitor. An
// acknowledged message waits, was received, or was notified of once: see
// docs/operate/start-and-stop.md.
//
// Like TestRollingRestarts it runs on the real clock.
func TestUpgrades(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	before, now := previous(t), version{commit: "this version", binary: program.Build(t), reads: wireVersion(t, root)}
	for _, companions := range []string{"each", "slot"} {
		t.Run("to this version, companions "+companions, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			u := newUpgrade(t, before, now, companions, now.binary)
			u.replaceMonitor()
			u.traffic(300)
			u.replaceProxy()
			u.end()
			u.remembers()
		})
		t.Run("to the previous version, companions "+companions, func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, now, before, companions, now.binary)
			if before.reads < now.reads {
				// The previous monitor cannot read all companions of this proxy.
				u.replaceProxy()
				u.traffic(50)
				u.settled()
				u.replaceMonitor()
			} else {
				u.replaceMonitor()
				u.traffic(300)
				u.replaceProxy()
			}
			u.end()
		})
	}
	t.Run("to this version, with a journal", func(t *testing.T) {
		t.Parallel()
		upgradeWithJournal(t, before.binary, now.binary)
	})
}

// An upgrade is one of TestUpgrades: processes of one version that are replaced by those of
// another.
type upgrade struct {
	*roll
	to      version
	history string // a variable: the monitors have one history, one after the other
	proxy   pairOfRoles
	monitor *running
	stop    func()
}

// newUpgrade starts processes of a version, and apps.
func newUpgrade(t *testing.T, from, to version, companions, broker string) *upgrade {
	t.Helper()
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	t.Cleanup(sink.Close)
	u := &upgrade{
		roll: &roll{processes: newProcesses(t, broker, sink.URL), Hook: h, signal: syscall.SIGTERM, settings: []string{"OVERDUE_COMPANIONS=" + companions}},
		to:   to, history: "OVERDUE_HISTORY_DIRECTORY=" + t.TempDir(),
	}
	u.start("broker", "OVERDUE_BROKER_QUEUES=[{name: orders, deadLetteringOnMessageExpiration: true}, "+
		"{name: served, deadLetteringOnMessageExpiration: true, lockDuration: 5s, maxDeliveryCount: 2000}, "+
		"{name: companions, lockDuration: 1m, maxDeliveryCount: 2000}]")
	u.binary = from.binary
	u.endpoints = newBalancer(t)
	u.proxy, u.monitor = u.startProxy(), u.startMonitor()
	u.stop = u.load()
	u.traffic(200)
	return u
}

func (u *upgrade) startMonitor() *running {
	u.Helper()
	m := u.begin("monitor", append(slices.Clone(u.settings), u.history)...)
	u.ready(m)
	return m
}

// startProxy starts one more, which apps come to.
func (u *upgrade) startProxy() pairOfRoles {
	u.Helper()
	p := pairOfRoles{endpoint: freeport.Address(u.T)}
	p.proxy = u.begin("proxy", append(slices.Clone(u.settings), "OVERDUE_LISTEN_AMQP="+p.endpoint, "OVERDUE_LISTEN_HTTP=127.0.0.1:0")...)
	u.ready(p.proxy)
	u.endpoints.add(p.endpoint)
	return p
}

// replaceMonitor leaves a gap in which deadlines pass.
func (u *upgrade) replaceMonitor() {
	u.Helper()
	u.processes.end(u.monitor, syscall.SIGTERM)
	u.traffic(50)
	u.binary = u.to.binary
	u.monitor = u.startMonitor()
}

func (u *upgrade) replaceProxy() {
	u.Helper()
	u.binary = u.to.binary
	next := u.startProxy()
	u.endpoints.remove(u.proxy.endpoint)
	u.processes.end(u.proxy.proxy, syscall.SIGTERM)
	u.proxy = next
}

// settled waits until no companion is due soon of those that were there.
func (u *upgrade) settled() {
	u.Helper()
	written := map[int64]bool{}
	for _, m := range u.peek("companions", 0) {
		written[*m.SequenceNumber] = m.ScheduledEnqueueTime == nil || time.Until(*m.ScheduledEnqueueTime) < 10*time.Minute
	}
	for end := time.Now().Add(2 * time.Minute); slices.ContainsFunc(u.peek("companions", 0), func(m *azservicebus.ReceivedMessage) bool { return written[*m.SequenceNumber] }); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			u.Fatal("companions are not done with after a minute")
		}
	}
}

// end checks what became of every message.
func (u *upgrade) end() {
	u.Helper()
	u.traffic(200)
	u.stop()
	u.check()
	if n := len(u.Events()); n < 200 {
		u.Errorf("%d deadlines were missed, want more for this test to mean something", n)
	}
	if bad := u.peek("companions", azservicebus.SubQueueDeadLetter); len(bad) > 0 {
		u.Errorf("%d companions were refused, such as one for %q", len(bad), *bad[0].DeadLetterErrorDescription)
	}
}

// remembers checks that the history of the monitor has all events, those of its predecessor
// included.
func (u *upgrade) remembers() {
	u.Helper()
	found, err := past.Fetch[past.Fetched](u.Context(), u.monitor.admin, past.MissedPath, "", time.Now().Add(-time.Hour))
	if err != nil {
		u.Fatal(err)
	}
	has := map[string]bool{}
	for i := range found.Found {
		has[found.Found[i].ID] = true
	}
	for _, e := range u.Events() {
		if !has[e.ID] {
			u.Errorf("the history lacks %s, which was dead-lettered at %v", e.Subject, e.Data.DeadLetteredTime)
		}
	}
}

// upgradeWithJournal replaces a proxy that has companions in its journal.
func upgradeWithJournal(t *testing.T, before, now string) {
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	t.Cleanup(sink.Close)
	p := newProcesses(t, now, sink.URL)
	p.start("broker")
	p.binary = before
	passing := []string{"OVERDUE_ON_MONITOR_DOWN=pass", "OVERDUE_JOURNAL_DIRECTORY=" + t.TempDir()}
	proxy := p.begin("proxy", passing...)
	p.ready(proxy)
	fault := p.control("POST", "faults", `{"entity": "companions", "operation": "send", "error": "full"}`)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("m-%02d", i))
		p.send(want[i], 2*time.Second)
	}
	p.end(proxy, syscall.SIGTERM)
	if written := p.peek("companions", 0); len(written) > 0 {
		t.Fatalf("%d companions are on the monitor queue, want all of them in the journal", len(written))
	}
	p.control("DELETE", "faults/"+fault, "")
	p.binary = now
	p.start("monitor")
	p.start("proxy", passing...)
	for end := time.Now().Add(2 * time.Minute); len(h.Subjects()) < len(want) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // for events that must not come
	if got := h.Subjects(); !slices.Equal(got, want) {
		t.Errorf("notified of %v, want each of %v once", got, want)
	}
}

// root is the checkout.
const root = "../.."

// A version is one that was built from git.
type version struct {
	commit, binary string
	reads          int // companions up to this version
}

// previous builds the version to upgrade from: OVERDUE_UPGRADE_FROM, or the last release, or else
// the commit before this one. While the checkout has changes, that is the commit that they are made
// to.
func previous(t *testing.T) (v version) {
	t.Helper()
	if v.commit = os.Getenv("OVERDUE_UPGRADE_FROM"); v.commit == "" {
		v.commit = previousCommit(t)
	}
	folder := t.TempDir()
	archive, source := filepath.Join(folder, "source.tar"), filepath.Join(folder, "source")
	if out, err := exec.Command("git", "-C", root, "archive", "--output", archive, v.commit).CombinedOutput(); err != nil {
		t.Fatalf("git archive %s: %v\n%s\n%s", v.commit, err, out, needsHistory)
	}
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", source).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	v.reads, v.binary = wireVersion(t, source), filepath.Join(folder, "overdue")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", v.binary, "./cmd/overdue")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "PWD="+source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", v.commit, err, out)
	}
	t.Logf("the previous version is %s, which reads companions up to version %d", v.commit, v.reads)
	return v
}

const needsHistory = "This test builds the previous version from git. In a shallow clone, run: git fetch --unshallow --tags"

// previousCommit fails the test where git cannot say: nothing would be tested without it.
func previousCommit(t *testing.T) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if said, err := git("rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		t.Fatalf("git does not know this checkout: %v %s\nThis test builds the previous version from git, so it needs a clone and not an archive.", err, said)
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"); err == nil {
		return tag
	}
	commit := "HEAD"
	if changes, err := git("status", "--porcelain", "--", "*.go", "go.mod"); err != nil {
		t.Fatalf("git status: %v %s", err, changes)
	} else if changes == "" {
		commit = "HEAD^"
	}
	hash, err := git("rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		t.Fatalf("%s is not here: %v %s\n%s", commit, err, hash, needsHistory)
	}
	return hash
}

// wireVersion is the latest version of companions that the program in a folder reads.
func wireVersion(t *testing.T, folder string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "scheduler", "wire.go"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^const wireVersion = (\d+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("scheduler/wire.go has no constant wireVersion")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
