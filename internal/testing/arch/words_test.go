// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// strangeWords are words that a Service Bus user would not recognise, each with the field's word
// for it. .vale/styles/Overdue/Words.yml has the same for prose. "Room" for space that is left, and
// "in flight", are fine.
var strangeWords = map[string]string{
	"door": "endpoint, listener", "doors": "endpoints, listeners", "rooms": "components",
	"tell": "notify", "tells": "notifies", "told": "notified", "telling": "notification",
	"teller": "notifier", "tellers": "notifiers",
	"look": "check", "looks": "checks", "looked": "checked", "looking": "checking",
	"reckoning": "check", "eyes": "check",
	"shelf": "range cache", "shelves": "range caches", "landmark": "sequence index", "landmarks": "sequence index",
	"ring": "become due", "rings": "becomes due", "rang": "became due", "ringing": "due",
	"flight": "batch", "flights": "batches", "beside": "async",
	"namesake": "duplicate id", "namesakes": "duplicate ids", "gather": "duplicate ids", "unnamed": "without id",
	"farewell": "drain", "farewells": "drain",
	"patience": "timeout", "patient": "operator client", "hands": "operator client", "knock": "operator client",
	"vanish": "disappear", "vanished": "disappeared", "vanishing": "disappearing", "vanishings": "disappeared",
	"sweep": "scan, adoption pass", "sweeps": "scans, adoption passes", "sweeper": "scanner", "swept": "scanned",
	"poke": "nudge", "zombie": "overdue", "watchdog": "companion", "shadow": "monitor queue",
	"traits": "entity settings", "wishes": "entity settings", "wish": "setting",
	"covers": "slot registry", "util": "its purpose", "utils": "its purpose", "common": "its purpose",
	"helpers": "its purpose", "manager": "its purpose",
}

// properUses are identifiers that have such a word for a reason.
var properUses = map[string]string{
	"internal/servicebus/sas.Covers":    "a signature covers an address",
	"internal/broker.common":            "the fields that correlation filters share on the wire",
	"internal/testing/exercise.manager": "the client of $management",
	"alert.CommonLabels":                "a field of the webhook of Alertmanager",
	"alert.CommonAnnotations":           "a field of the webhook of Alertmanager",
}

// wordsKept are the packages whose declarations and files have the field's words only. The list
// grows until it has them all.
var wordsKept = []string{
	"alert", "deploy", "test/drill", "internal/adminport", "internal/amqp", "internal/amqp/client", "internal/amqp/relay", "internal/amqp/server",
	"internal/bench", "internal/boltcheck", "internal/bench/delay", "internal/bench/haproxy", "internal/broker", "internal/broker/adminapi", "internal/broker/emulator",
	"internal/broker/filter", "internal/broker/httpapi", "internal/broker/message", "internal/broker/queue",
	"internal/catalog", "internal/config", "internal/connect", "internal/demo", "internal/escape", "internal/httpclient", "internal/lag",
	"internal/lifecycle", "internal/listener", "internal/listener/accept", "internal/listener/socket",
	"internal/listener/tlsrecord", "internal/history", "internal/notifications", "internal/operations", "internal/operator",
	"internal/operator/canary", "internal/operator/deadlines", "internal/operator/dlq", "internal/operator/doctor",
	"internal/operator/messages", "internal/operator/verify", "internal/broker/quirk", "internal/redisstore",
	"internal/servicebus/address", "internal/servicebus/atom", "internal/servicebus/duration",
	"internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link",
	"internal/servicebus/rest", "internal/servicebus/rights", "internal/servicebus/sas", "internal/servicebus/sdk",
	"internal/slack", "internal/terminal", "internal/testing/apptest", "internal/testing/brokertest", "internal/testing/bubble", "internal/testing/exercise", "internal/testing/freeport", "internal/testing/hooktest", "internal/testing/httpapitest",
	"internal/testing/pipenet", "internal/testing/program", "internal/testing/redistest", "internal/testing/testseed", "internal/testing/wiretap",
	"internal/unreceived", "internal/version", "internal/web", "monitor", "monitor/adopt", "monitor/intake", "monitor/judge", "monitor/metrics", "monitor/notify", "monitor/nudge", "monitor/scan", "monitor/search", "proxy", "scheduler", "scheduler/index", "scheduler/journal", "test/bench",
	"test/bench/broker", "test/bench/peers", "test/bench/pump", "test/bench/relay", "test/bench/usage",
	"examples/sidecar/go", "examples/rest/go", "examples/dead-letters/go", "test/conformance", "test/dapr", "test/e2e", "test/foreign", "test/mutate", "test/sdk", "test/sdk/examples/go", "test/web",
}

var wordOfName = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// strange returns the first word of name that has another one here.
func strange(name string) (word, instead string) {
	words := wordOfName.FindAllString(name, -1)
	for i, w := range words {
		w = strings.ToLower(w)
		if (w == "flight" || w == "flights") && i > 0 && strings.EqualFold(words[i-1], "in") {
			continue
		}
		if better := strangeWords[w]; better != "" {
			return w, better
		}
	}
	return "", ""
}

func TestNamesAreTheFieldsWords(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	strangeIn := map[string][]string{} // by package
	found, excused := map[string]bool{}, map[string]bool{}
	walk(t, ".go", func(path string) {
		abs, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, abs)
		if err != nil {
			t.Fatal(err)
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		found[pkg] = true
		for name := range declared(parse(t, path), strings.TrimSuffix(filepath.Base(path), ".go")) {
			word, instead := strange(name)
			if word == "" {
				continue
			}
			if properUses[pkg+"."+name] != "" {
				excused[pkg+"."+name] = true
				continue
			}
			strangeIn[pkg] = append(strangeIn[pkg], name)
			if slices.Contains(wordsKept, pkg) {
				t.Errorf("%s: %s has the word %q; write %s", filepath.ToSlash(rel), name, word, instead)
			}
		}
	})
	for _, pkg := range wordsKept {
		if !found[pkg] {
			t.Errorf("wordsKept has %s, which does not exist", pkg)
		}
	}
	for name := range properUses {
		if !excused[name] {
			t.Errorf("properUses excuses %s, which is nowhere", name)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(wordsKept, pkg) {
			t.Logf("%s is not kept yet, %d names: %.120s", pkg, len(strangeIn[pkg]), strings.Join(strangeIn[pkg], " "))
		}
	}
}

// declared returns the names that a file declares, and its own.
func declared(file *ast.File, base string) map[string]bool {
	names := map[string]bool{base: true, file.Name.Name: true}
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			names[id.Name] = true
		}
	}
	addExprs := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				add(id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				addExprs(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				addExprs(n.Key, n.Value)
			}
		}
		return true
	})
	return names
}

func TestStrangeWordsAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"atDoor": "door", "TestTheDoorOpens": "door", "tellSharedLocked": "tell", "sweep_note": "sweep", "flightOfSends": "flight",
		"inFlight": "", "maxInFlight": "", "hasRoom": "", "lookup": "", "string": "", "uncovered": "", "recover": "",
	} {
		if got, _ := strange(name); got != want {
			t.Errorf("strange(%s) = %q, want %q", name, got, want)
		}
	}
}
