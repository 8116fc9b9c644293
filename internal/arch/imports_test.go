// SPDX-License-Identifier: Apache-2.0

// Package arch holds no code: its test keeps the direction of the imports, which
// ARCHITECTURE.md draws.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "overdue"

// Third-party modules that rooms may name.
const (
	azcore       = "github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azidentity   = "github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azservicebus = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp       = "github.com/Azure/go-amqp"
	hujson       = "github.com/tailscale/hujson"
	bbolt        = "go.etcd.io/bbolt"
	backoff      = "github.com/cenkalti/backoff/v5"
	cobra        = "github.com/spf13/cobra"
	fsnotify     = "github.com/fsnotify/fsnotify"
	websocket    = "github.com/coder/websocket"
	koanf        = "github.com/knadh/koanf"
	mail         = "github.com/wneessen/go-mail"
	shoutrrr     = "github.com/nicholas-fedor/shoutrrr"
	goredis      = "github.com/redis/go-redis/v9"
	miniredis    = "github.com/alicebob/miniredis/v2"
	prometheus   = "github.com/prometheus/client_golang"
	sync         = "golang.org/x/sync"
	term         = "golang.org/x/term"
	yaml         = "go.yaml.in/yaml/v3"
	zap          = "go.uber.org/zap"
)

// A room may import what stands here, the standard library, and nothing else.
type room struct {
	ours   []string // rooms, by folder
	others []string // modules
}

var rooms = map[string]room{
	"cmd/overdue": {
		ours:   []string{"alert", "proxy", "monitor", "scheduler", "internal/address", "internal/broker", "internal/brokerhttp", "internal/canary", "internal/dlq", "internal/doctor", "internal/door", "internal/emulator", "internal/entities", "internal/kept", "internal/operations", "internal/queue", "internal/redisstore", "internal/relay", "internal/sas", "internal/sbclient", "internal/sblink", "internal/tlsrecord", "internal/outbound", "internal/visible"},
		others: []string{azcore, azidentity, azservicebus, backoff, goamqp, cobra, fsnotify, koanf, prometheus, sync, term, yaml, zap},
	},
	"proxy":               {[]string{"scheduler", "internal/address", "internal/amqp", "internal/atomxml", "internal/door", "internal/inflight", "internal/operations", "internal/relay", "internal/rights", "internal/sas", "internal/sbclient", "internal/sbrest"}, []string{azcore, azservicebus, goamqp, prometheus, sync, zap}},
	"monitor":             {[]string{"alert", "scheduler", "internal/entities", "internal/kept", "internal/operations", "internal/sblink"}, []string{backoff, goamqp, prometheus, sync, zap}},
	"alert":               {[]string{"internal/outbound", "internal/sbclient", "internal/sblink", "internal/visible"}, []string{azcore, azservicebus, backoff, goamqp, mail, shoutrrr, zap}},
	"scheduler":           {[]string{"internal/inflight", "internal/kept", "internal/operations", "internal/sbclient", "internal/sblink"}, []string{azcore, azservicebus, bbolt, goamqp}},
	"internal/operations": {others: []string{prometheus}},
	"internal/outbound":   {},
	"internal/redisstore": {[]string{"internal/kept"}, []string{goredis, sync}},
	"internal/kept":       {},
	"internal/redistest":  {[]string{"internal/freeport"}, []string{miniredis}},
	"internal/address":    {},
	"internal/atomxml":    {ours: []string{"internal/address"}},
	"internal/sas":        {ours: []string{"internal/address"}},
	"internal/rights":     {ours: []string{"internal/address", "internal/amqp", "internal/sas"}},
	"internal/sblink":     {[]string{"internal/amqp", "internal/sas"}, []string{azcore, goamqp, sync}},
	"internal/inflight":   {},
	"internal/sbclient":   {others: []string{azservicebus, goamqp}},
	"internal/entities":   {ours: []string{"internal/iso8601"}},
	"internal/doctor":     {[]string{"internal/entities", "internal/iso8601", "internal/sblink", "internal/visible"}, []string{azcore, azservicebus, goamqp, sync}},
	"internal/amqp":       {},
	"internal/accept":     {},
	"internal/amqpserver": {ours: []string{"internal/accept", "internal/amqp"}},
	"internal/queue":      {},
	"internal/broker":     {ours: []string{"internal/address", "internal/amqp", "internal/amqpserver", "internal/queue", "internal/rights", "internal/sas", "internal/sqlfilter"}},
	"internal/sqlfilter":  {},
	"internal/sbrest":     {ours: []string{"internal/amqp"}},
	"internal/atom":       {ours: []string{"internal/address", "internal/atomxml", "internal/broker", "internal/iso8601", "internal/queue"}},
	"internal/iso8601":    {},
	"internal/brokerhttp": {
		ours: []string{"internal/accept", "internal/address", "internal/broker", "internal/door", "internal/queue", "internal/amqp", "internal/atom", "internal/rights", "internal/sbrest", "internal/sas"},
	},
	"internal/door":     {[]string{"internal/accept", "internal/sbrest", "internal/tlsrecord"}, []string{websocket}},
	"internal/relay":    {ours: []string{"internal/accept", "internal/address", "internal/amqp", "internal/rights", "internal/sas"}},
	"internal/pipenet":  {},
	"internal/emulator": {[]string{"internal/broker"}, []string{hujson}},
	"internal/brokertest": {
		[]string{"internal/amqp", "internal/amqpserver", "internal/broker", "internal/pipenet", "internal/queue", "internal/sas", "internal/sbclient"},
		[]string{azcore, azservicebus, goamqp, "github.com/google/go-cmp"},
	},
	"internal/canary":    {[]string{"internal/outbound", "internal/sbclient"}, []string{azservicebus, prometheus, zap}},
	"internal/dlq":       {[]string{"internal/amqp", "internal/sblink", "scheduler"}, []string{bbolt, goamqp, sync}},
	"internal/testseed":  {},
	"internal/tlsrecord": {},
	"internal/visible":   {},
	"internal/freeport":  {},
	"internal/arch":      {},
	"tools/mutate":       {},
	"conformance":        {[]string{"internal/amqp", "internal/door"}, []string{sync}},
}

// What the tests of every room may import on top. A test builds the scene around its
// room; only proxy and monitor still never meet.
var inTests = room{
	ours: []string{"internal/address", "internal/amqp", "internal/amqpserver", "internal/broker", "internal/brokerhttp", "internal/brokertest", "internal/door", "internal/pipenet",
		"internal/kept", "internal/operations", "internal/queue", "internal/redisstore", "internal/redistest", "internal/sas", "internal/sbclient", "internal/sblink", "internal/sbrest", "internal/tlsrecord", "scheduler"},
	others: []string{azcore, azservicebus, goamqp, websocket, miniredis, prometheus, sync, yaml, zap, "github.com/cloudevents/sdk-go", "github.com/google/go-cmp",
		"github.com/santhosh-tekuri/jsonschema", "github.com/spf13/pflag",
		"github.com/rogpeppe/go-internal", "pgregory.net/rapid"},
}

// Whole-flow tests and load, and a file that only keeps modules in go.mod.
var unbound = []string{"e2e", "bench", "deploy", "internal/deps"}

// The tests of what the rooms stand on must not need the rooms.
var plainTests = []string{"internal/queue", "internal/sqlfilter", "internal/amqp", "internal/pipenet"}

// It parses the files instead of asking `go list`, whose answer the test cache
// would not see change.
func TestImportsKeepTheirDirection(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && (d.Name() == "testdata" || rel == "bin" || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(rel, ".go") {
			return nil
		}
		folder := path.Dir(rel)
		if slices.ContainsFunc(unbound, func(u string) bool { return folder == u || strings.HasPrefix(folder, u+"/") }) {
			return nil
		}
		r, ok := rooms[folder]
		if !ok {
			t.Errorf("%s: the folder %s is no room; give it a row in this test and in ARCHITECTURE.md", rel, folder)
			return nil
		}
		seen[folder] = true
		checkFile(t, file, rel, folder, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range rooms {
		if !seen[folder] {
			t.Errorf("room %s has no Go file; take its row out", folder)
		}
	}
}

func checkFile(t *testing.T, file, rel, folder string, r room) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	ours, others := slices.Concat(r.ours, []string{folder}), r.others
	if strings.HasSuffix(rel, "_test.go") {
		ours = append(ours, "internal/testseed", "internal/freeport")
		others = slices.Concat(others, inTests.others)
		if !slices.Contains(plainTests, folder) {
			ours = slices.Concat(ours, inTests.ours)
		}
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		switch {
		case imported == azidentity && rel != "cmd/overdue/connect.go":
			t.Errorf("%s imports azidentity; only cmd/overdue/connect.go may", rel)
		case strings.HasPrefix(imported, module+"/"):
			if !slices.Contains(ours, strings.TrimPrefix(imported, module+"/")) {
				t.Errorf("%s imports %s, which %s may not", rel, imported, folder)
			}
		case strings.Contains(strings.Split(imported, "/")[0], "."):
			if !slices.ContainsFunc(others, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
				t.Errorf("%s imports %s, which %s may not", rel, imported, folder)
			}
		}
	}
}

func TestEveryGoFileHasItsLicence(t *testing.T) {
	const want = "// SPDX-License-Identifier: Apache-2.0\n"
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		text, err := fs.ReadFile(root, file)
		if err == nil && !strings.HasPrefix(string(text), want) {
			t.Errorf("%s does not begin with %q", file, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
