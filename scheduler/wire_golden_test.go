// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Companions may wait for months on a monitor queue, so every version that a proxy has ever written
// has to be read for ever. The files are as programs of that version write them; none is ever
// changed or removed.
func TestCompanionsOfEarlierVersionsAreRead(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	const minutes, seconds = time.Minute, time.Second
	files := map[string]Companion{
		"v1-each": {Entity: "orders", References: []Reference{{MessageID: "order-2", Sent: at("2026-11-25T23:39:04.553583059Z"),
			From: at("2026-11-25T23:39:04.552Z"), Until: at("2026-11-25T23:39:06.554537766Z"),
			Deadline: at("2026-11-25T23:44:04.553583059Z"), Within: 5 * minutes, Stated: "within"}}},
		"v1-complete": {Entity: "orders", References: []Reference{{MessageID: "order-3", Sent: at("2026-11-25T23:39:12.32069228Z"),
			From: at("2026-11-25T23:39:12.319Z"), Until: at("2026-11-25T23:39:14.321724689Z"),
			Deadline: at("2026-11-25T23:49:12.32069228Z"), Within: 10 * minutes, Stated: "ttl", CompleteWithin: 10 * minutes}}},
		"v1-slot": {Entity: "orders", SlotEnd: at("2026-11-25T23:49:19.96Z"), SlotLength: shortSlot, Lives: []time.Duration{10 * minutes}},
		"v2-complete": {Entity: "orders", References: []Reference{
			{MessageID: "m-1", Sent: noon, Deadline: noon.Add(5 * minutes), Within: 5 * minutes, Stated: StatedComplete, Incomplete: true},
			{MessageID: "m-2", Sent: noon, Deadline: noon.Add(30 * seconds), Within: 30 * seconds, Stated: "ttl", CompleteWithin: 90 * seconds, Warned: 5 * seconds}}},
		"v2-without-id": {Entity: "orders", References: []Reference{{Sent: noon, From: noon.Add(-10 * time.Millisecond), Until: noon.Add(2 * seconds),
			Deadline: noon.Add(30 * seconds), Within: 30 * seconds, Stated: "ttl"}}},
		"v2-spans": {Entity: "orders", SlotEnd: noon.Add(30*seconds + shortSlot), SlotLength: shortSlot, Lives: []time.Duration{30 * seconds},
			Spans: []span{{40 * seconds, 41 * seconds}}, Defaults: []time.Duration{30 * seconds}},
		"v3-slot": {Entity: "orders", SlotEnd: at("2026-11-25T23:49:29.9Z"), SlotLength: 100 * time.Millisecond, Lives: []time.Duration{10 * minutes}},
	}
	for name, want := range files {
		text, err := os.ReadFile(filepath.Join("testdata", "companions", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if version, _, _ := strings.Cut(name, "-"); !strings.HasPrefix(string(text), `{"version":`+version[1:]+",") {
			t.Errorf("%s has another version: %s", name, text)
		}
		got, err := ParseCompanion(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for version := 1; version <= wireVersion; version++ {
		if found, err := filepath.Glob(fmt.Sprintf("testdata/companions/v%d-*.json", version)); err != nil || len(found) == 0 {
			t.Errorf("testdata/companions has no companion of version %d (%v)", version, err)
		}
	}
	if found, err := filepath.Glob("testdata/companions/*"); err != nil || len(found) != len(files) {
		t.Errorf("testdata/companions has %d files (%v), and this test reads %d", len(found), err, len(files))
	}
	page, err := os.ReadFile("../docs/operate/start-and-stop.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, table, ok := strings.Cut(string(page), "## Companion versions\n"); !ok || !strings.Contains(table, fmt.Sprintf("\n| %d | ", wireVersion)) || strings.Contains(table, fmt.Sprintf("\n| %d | ", wireVersion+1)) {
		t.Errorf("docs/operate/start-and-stop.md does not end its list of companion versions with %d", wireVersion)
	}
}
