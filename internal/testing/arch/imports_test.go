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

// Third-party modules that packages may import.
const (
	azcore          = "github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azidentity      = "github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azservicebus    = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp          = "github.com/Azure/go-amqp"
	httpguts        = "golang.org/x/net/http/httpguts"
	hujson          = "github.com/tailscale/hujson"
	bbolt           = "go.etcd.io/bbolt"
	apd             = "github.com/cockroachdb/apd/v3"
	btree           = "github.com/tidwall/btree"
	backoff         = "github.com/cenkalti/backoff/v5"
	cobra           = "github.com/spf13/cobra"
	fsnotify        = "github.com/fsnotify/fsnotify"
	websocket       = "github.com/coder/websocket"
	logr            = "github.com/go-logr/logr"
	mapstructure    = "github.com/go-viper/mapstructure/v2"
	mail            = "github.com/wneessen/go-mail"
	shoutrrr        = "github.com/nicholas-fedor/shoutrrr"
	goredis         = "github.com/redis/go-redis/v9"
	miniredis       = "github.com/alicebob/miniredis/v2"
	otel            = "go.opentelemetry.io/otel"
	pebble          = "github.com/cockroachdb/pebble/v2"
	pflag           = "github.com/spf13/pflag"
	protobuf        = "google.golang.org/protobuf"
	procfs          = "github.com/prometheus/procfs"
	prometheus      = "github.com/prometheus/client_golang"
	prometheusmodel = "github.com/prometheus/client_model"
	net             = "golang.org/x/net"
	sync            = "golang.org/x/sync"
	term            = "golang.org/x/term"
	yaml            = "go.yaml.in/yaml/v3"
	zap             = "go.uber.org/zap"

	kubeapi       = "k8s.io/api"
	kubejson      = "sigs.k8s.io/json"
	kubemachinery = "k8s.io/apimachinery"
	kubeyaml      = "sigs.k8s.io/yaml"
	kyaml         = "sigs.k8s.io/kustomize/kyaml"
)

// allowance lists the packages that a package may import in addition to the standard library.
type allowance struct {
	ours   []string // packages of this module, by folder
	others []string // modules
}

// allowed has a row for every package of this module, by folder.
var allowed = map[string]allowance{
	"cmd/overdue": {
		ours:   []string{"internal/broker/entityfile", "internal/operator/copyconfig", "internal/app", "internal/bench", "internal/broker/directory", "internal/config", "internal/demo", "internal/escape", "internal/history", "internal/lifecycle", "internal/operator", "internal/operator/audit", "internal/operator/deadlines", "internal/operator/dlq", "internal/operator/doctor", "internal/operator/inject", "internal/operator/inject/admission", "internal/operator/messages", "internal/operator/plan", "internal/operator/verify", "internal/plural", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/failure", "internal/slack", "internal/terminal", "internal/version", "monitor/mute"},
		others: []string{cobra, pflag},
	},
	"proxy":           {[]string{"internal/servicebus/link", "internal/traces", "proxy/durations", "proxy/proven", "internal/monitorqueue", "internal/lifecycle", "scheduler", "scheduler/index", "scheduler/journal", "internal/servicebus/address", "internal/servicebus/duration", "internal/amqp", "internal/servicebus/atom", "internal/listener", "internal/operations", "internal/amqp/relay", "internal/servicebus/rights", "internal/servicebus/sas", "internal/servicebus/rest", "internal/slack"}, []string{goamqp, prometheus, sync, zap}},
	"monitor":         {[]string{"internal/monitorqueue", "alert", "scheduler", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/operations", "internal/pace", "internal/servicebus/link", "monitor/adopt", "monitor/intake", "monitor/judge", "monitor/metrics", "monitor/mute", "monitor/notify", "monitor/nudge", "monitor/scan", "monitor/search"}, []string{btree, prometheus, sync, zap}},
	"monitor/adopt":   {[]string{"internal/operations", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/link", "monitor/intake", "monitor/judge", "monitor/scan", "monitor/search", "scheduler"}, []string{zap}},
	"monitor/intake":  {[]string{"internal/monitorqueue", "internal/operations", "internal/redisstore", "internal/servicebus/link", "scheduler"}, []string{zap}},
	"monitor/judge":   {ours: []string{"internal/servicebus/duration", "internal/servicebus/link", "monitor/search", "scheduler"}},
	"monitor/metrics": {[]string{"alert", "internal/lag", "internal/operations", "internal/pace"}, []string{backoff, prometheus}},
	"monitor/mute":    {[]string{"internal/operations", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/link", "monitor/search", "scheduler"}, []string{zap}},
	"monitor/nudge":   {[]string{"internal/operations", "internal/servicebus/duration", "internal/servicebus/link", "monitor/judge", "monitor/search", "scheduler"}, []string{sync}},
	"monitor/scan":    {[]string{"internal/operations", "internal/servicebus/link", "monitor/judge", "monitor/search", "scheduler"}, []string{sync}},
	"monitor/notify":  {[]string{"alert", "internal/pace", "internal/redisstore", "internal/servicebus/address", "monitor/intake", "scheduler"}, []string{backoff, zap}},
	"monitor/search":  {ours: []string{"internal/operations", "internal/servicebus/duration", "internal/servicebus/link", "scheduler"}},
	"alert":           {[]string{"internal/pace", "internal/plural", "internal/traceparent", "internal/monitorqueue", "internal/servicebus/address", "internal/servicebus/duration", "internal/httpclient", "internal/servicebus/link", "internal/escape"}, []string{backoff, goamqp, httpguts, mail, shoutrrr, zap}},
	"scheduler":       {ours: []string{"internal/traceparent", "internal/monitorqueue", "internal/lifecycle", "scheduler/index", "internal/servicebus/address", "internal/servicebus/duration", "internal/operations", "internal/redisstore", "internal/servicebus/link"}},
	"internal/app": {
		ours:   []string{"alert", "internal/adminport", "internal/amqp/relay", "internal/broker", "internal/broker/directory", "internal/broker/httpapi", "internal/broker/queue", "internal/broker/quirk", "internal/broker/store", "internal/catalog", "internal/config", "internal/connect", "internal/escape", "internal/history", "internal/lifecycle", "internal/listener", "internal/monitorqueue", "internal/operations", "internal/operator/audit", "internal/operator/canary", "internal/operator/deadlines", "internal/operator/dlq", "internal/operator/inject/admission", "internal/plural", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link", "internal/slack", "internal/terminal", "internal/traceparent", "internal/traces", "internal/unreceived", "internal/version", "internal/web", "monitor", "monitor/metrics", "monitor/mute", "monitor/notify", "proxy", "scheduler", "scheduler/index", "scheduler/journal"},
		others: []string{backoff, fsnotify, goamqp, otel, prometheus, sync, zap},
	},
	"internal/demo":                 {[]string{"internal/app", "internal/config", "internal/escape", "internal/httpclient", "internal/lag", "internal/plural", "internal/terminal", "internal/web"}, []string{azcore, azservicebus, sync, term, zap}},
	"internal/operator/verify":      {[]string{"internal/broker/quirk", "internal/escape", "internal/plural", "internal/servicebus/failure", "internal/servicebus/link", "internal/terminal"}, []string{azcore, azservicebus, sync}},
	"internal/operator/plan":        {ours: []string{"internal/monitorqueue", "internal/terminal", "internal/version"}},
	"internal/operator/inject":      {[]string{"internal/escape", "internal/servicebus/address"}, []string{kubemachinery, kubejson, kubeyaml, kyaml}},
	"internal/operator/messages":    {[]string{"internal/amqp", "internal/config", "internal/escape", "internal/operator", "internal/operator/audit", "internal/operator/dlq", "internal/plural", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link", "internal/terminal"}, []string{azservicebus}},
	"internal/config":               {[]string{"alert", "internal/monitorqueue", "internal/broker", "internal/broker/quirk", "internal/broker/emulator", "internal/httpclient", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/namespace", "internal/servicebus/sas", "internal/version"}, []string{httpguts, mapstructure, yaml}},
	"internal/connect":              {[]string{"internal/config", "internal/httpclient", "internal/listener/tlsrecord", "internal/servicebus/entities", "internal/servicebus/link", "internal/servicebus/namespace", "internal/version"}, []string{azcore, azidentity, azservicebus, zap}},
	"internal/version":              {},
	"internal/catalog":              {[]string{"internal/monitorqueue", "internal/broker", "internal/config", "internal/servicebus/address", "internal/servicebus/entities", "monitor", "monitor/adopt", "proxy"}, []string{zap}},
	"internal/lifecycle":            {others: []string{zap}},
	"internal/adminport":            {[]string{"internal/config", "internal/escape", "internal/history", "internal/lifecycle"}, []string{net, prometheus, zap}},
	"internal/web":                  {[]string{"alert", "internal/amqp", "internal/broker", "internal/broker/httpapi", "internal/broker/message", "internal/broker/queue", "internal/escape", "internal/history", "internal/operator/audit", "internal/operator/deadlines", "internal/operator/dlq", "internal/plural", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link", "internal/servicebus/rest", "internal/slack", "monitor/mute"}, []string{prometheus, prometheusmodel}},
	"scheduler/index":               {},
	"scheduler/journal":             {[]string{"internal/boltcheck", "internal/lifecycle", "scheduler", "internal/servicebus/link"}, []string{bbolt}},
	"internal/monitorqueue":         {},
	"internal/pace":                 {others: []string{backoff}},
	"internal/operations":           {others: []string{prometheus}},
	"internal/httpclient":           {},
	"internal/redisstore":           {nil, []string{goredis, sync}},
	"internal/testing/racetest":     {},
	"internal/testing/redistest":    {[]string{"internal/testing/freeport"}, []string{miniredis}},
	"internal/servicebus/address":   {},
	"internal/servicebus/atom":      {ours: []string{"internal/servicebus/address"}},
	"internal/servicebus/sas":       {ours: []string{"internal/servicebus/address"}},
	"internal/servicebus/rights":    {ours: []string{"internal/servicebus/address", "internal/amqp", "internal/servicebus/sas"}},
	"internal/servicebus/link":      {[]string{"internal/traceparent", "internal/amqp", "internal/amqp/client", "internal/servicebus/sas"}, []string{azcore, goamqp}},
	"internal/servicebus/entities":  {ours: []string{"internal/servicebus/address", "internal/servicebus/atom", "internal/servicebus/duration"}},
	"internal/operator/doctor":      {[]string{"internal/broker/directory", "internal/monitorqueue", "alert", "internal/escape", "internal/lag", "internal/operator/dlq", "internal/plural", "internal/redisstore", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link", "internal/terminal", "internal/unreceived", "monitor", "scheduler", "internal/version"}, []string{azcore, azservicebus, goamqp, sync, zap}},
	"internal/amqp":                 {},
	"internal/servicebus/failure":   {[]string{"internal/servicebus/entities", "internal/servicebus/link", "internal/version"}, []string{azcore, azservicebus, goamqp}},
	"internal/terminal":             {[]string{"internal/escape"}, []string{term}},
	"internal/listener/accept":      {},
	"internal/listener/socket":      {},
	"internal/amqp/transport":       {ours: []string{"internal/amqp", "internal/listener/accept", "internal/listener/socket"}},
	"internal/amqp/client":          {ours: []string{"internal/amqp", "internal/amqp/transport"}},
	"internal/amqp/server":          {ours: []string{"internal/listener/accept", "internal/amqp", "internal/amqp/transport"}},
	"internal/broker/quirk":         {},
	"internal/broker/queue":         {[]string{"internal/broker/quirk"}, []string{btree}},
	"internal/broker/store":         {[]string{"internal/amqp", "internal/broker/queue"}, []string{pebble}},
	"internal/broker/directory":     {ours: []string{"internal/broker", "internal/broker/queue", "internal/broker/store"}},
	"internal/broker/message":       {[]string{"internal/amqp", "internal/broker/filter", "internal/broker/queue", "internal/servicebus/rights"}, []string{apd}},
	"internal/broker":               {ours: []string{"internal/broker/store", "internal/broker/quirk", "internal/broker/message", "internal/servicebus/duration", "internal/servicebus/address", "internal/amqp", "internal/amqp/server", "internal/broker/queue", "internal/servicebus/rights", "internal/servicebus/sas", "internal/broker/filter"}},
	"internal/broker/filter":        {others: []string{apd}},
	"internal/servicebus/rest":      {ours: []string{"internal/amqp", "internal/servicebus/duration"}},
	"internal/broker/adminapi":      {ours: []string{"internal/amqp", "internal/broker", "internal/broker/filter", "internal/broker/message", "internal/broker/queue", "internal/servicebus/address", "internal/servicebus/atom", "internal/servicebus/duration", "internal/servicebus/rest"}},
	"internal/servicebus/duration":  {},
	"internal/servicebus/namespace": {},
	"internal/broker/entityfile":    {[]string{"internal/broker", "internal/broker/queue", "internal/servicebus/address", "internal/servicebus/duration"}, []string{yaml}},
	"internal/operator/copyconfig":  {[]string{"internal/broker", "internal/broker/adminapi", "internal/broker/entityfile", "internal/servicebus/address", "internal/servicebus/atom", "internal/servicebus/entities"}, []string{sync}},
	"internal/broker/httpapi": {
		ours: []string{"internal/broker/entityfile", "internal/servicebus/duration", "internal/listener/accept", "internal/servicebus/address", "internal/broker", "internal/broker/message", "internal/listener", "internal/broker/queue", "internal/amqp", "internal/broker/adminapi", "internal/servicebus/rights", "internal/servicebus/rest", "internal/servicebus/sas"},
	},
	"internal/listener":         {[]string{"internal/listener/accept", "internal/servicebus/rest", "internal/listener/tlsrecord"}, []string{websocket}},
	"internal/amqp/relay":       {ours: []string{"internal/listener/accept", "internal/servicebus/address", "internal/amqp", "internal/amqp/client", "internal/amqp/transport", "internal/servicebus/rights", "internal/servicebus/sas"}},
	"internal/testing/pipenet":  {},
	"internal/testing/hooktest": {ours: []string{"internal/testing/pipenet"}},
	"internal/testing/bubble": {
		[]string{"alert", "internal/broker", "internal/broker/queue", "internal/httpclient", "internal/redisstore", "internal/servicebus/entities", "internal/testing/brokertest", "internal/testing/hooktest",
			"internal/testing/pipenet", "internal/testing/racetest", "internal/testing/redistest", "internal/testing/testseed", "internal/amqp", "scheduler"},
		[]string{azservicebus, prometheus, zap, "github.com/google/go-cmp"},
	},
	"internal/testing/apptest":     {},
	"proxy/proven":                 {},
	"proxy/durations":              {[]string{"internal/traceparent"}, []string{prometheus}},
	"internal/traceparent":         {},
	"internal/traces":              {[]string{"internal/escape", "internal/httpclient", "internal/traceparent"}, []string{httpguts, logr, otel, prometheus, zap}},
	"internal/testing/otlptest":    {others: []string{"go.opentelemetry.io/proto/otlp", "google.golang.org/grpc", protobuf}},
	"internal/testing/httpapitest": {ours: []string{"internal/broker", "internal/broker/httpapi"}},
	"internal/broker/emulator":     {[]string{"internal/broker", "internal/broker/adminapi", "internal/broker/queue", "internal/servicebus/duration", "internal/servicebus/entities"}, []string{hujson, "golang.org/x/text"}},
	"internal/testing/brokertest": {
		[]string{"internal/amqp", "internal/amqp/server", "internal/broker", "internal/broker/queue", "internal/testing/pipenet", "internal/servicebus/link"},
		[]string{azservicebus},
	},
	"internal/testing/exercise": {
		[]string{"internal/amqp", "internal/broker", "internal/broker/queue", "internal/servicebus/sas", "internal/testing/brokertest"},
		[]string{azcore, azservicebus, goamqp, "github.com/google/go-cmp"},
	},
	"internal/history":            {[]string{"alert", "internal/boltcheck", "internal/escape", "internal/httpclient", "internal/operations", "internal/redisstore", "internal/servicebus/address", "internal/slack"}, []string{bbolt, prometheus}},
	"examples/sidecar/go":         {others: []string{azservicebus}},
	"examples/rest/go":            {},
	"examples/dead-letters/go":    {others: []string{azservicebus}},
	"examples/testing/go":         {others: []string{azservicebus}},
	"internal/slack":              {[]string{"internal/lag"}, []string{prometheus, prometheusmodel}},
	"internal/boltcheck":          {nil, []string{bbolt}},
	"internal/unreceived":         {[]string{"internal/broker/quirk", "internal/operations", "internal/plural", "internal/servicebus/link"}, []string{prometheus, zap}},
	"internal/operator/audit":     {others: []string{zap}},
	"internal/operator/canary":    {[]string{"internal/httpclient", "internal/operator/dlq", "internal/servicebus/link"}, []string{prometheus, zap}},
	"internal/operator":           {[]string{"alert", "internal/app", "internal/catalog", "internal/config", "internal/connect", "internal/httpclient", "internal/lifecycle", "internal/operator/dlq", "internal/operator/doctor", "internal/redisstore", "internal/servicebus/entities", "internal/servicebus/link", "scheduler"}, []string{azservicebus, zap}},
	"internal/operator/deadlines": {ours: []string{"internal/monitorqueue", "alert", "internal/config", "internal/escape", "internal/history", "internal/operator/dlq", "internal/plural", "internal/redisstore", "internal/servicebus/address", "internal/servicebus/duration", "internal/servicebus/entities", "internal/servicebus/failure", "internal/servicebus/link", "internal/terminal", "monitor/mute", "scheduler"}},
	"internal/operator/dlq":       {[]string{"internal/servicebus/address", "internal/amqp", "internal/servicebus/failure", "internal/servicebus/link", "scheduler"}, []string{bbolt, sync}},
	"internal/testing/testseed":   {},
	"internal/listener/tlsrecord": {},
	"internal/escape":             {},
	"internal/plural":             {},
	"internal/lag":                {},
	"internal/bench":              {[]string{"alert", "internal/bench/delay", "internal/httpclient", "internal/lag", "internal/plural", "internal/terminal"}, []string{azservicebus, procfs, sync}},
	"internal/bench/delay":        {},
	"internal/testing/freeport":   {},
	"internal/testing/generated":  {others: []string{"github.com/google/go-cmp"}},
	"internal/testing/program":    {},
	"internal/testing/container":  {ours: []string{"internal/testing/program"}},
	"internal/testing/arch":       {},
	"test/conformance":            {ours: []string{"internal/testing/program"}},
	"internal/operator/inject/admission": {
		[]string{"internal/adminport", "internal/escape", "internal/lifecycle", "internal/listener", "internal/operator/inject", "internal/servicebus/rest"},
		[]string{prometheus, zap},
	},
}

// allowedInTests is what the tests of every package may import as well. A test builds the scene
// around its package; only proxy and monitor still never meet.
var allowedInTests = allowance{
	ours: []string{"internal/servicebus/address", "internal/amqp", "internal/amqp/server", "internal/broker", "internal/broker/httpapi", "internal/testing/apptest", "internal/testing/brokertest", "internal/testing/bubble", "internal/testing/exercise", "internal/testing/generated", "internal/testing/hooktest", "internal/testing/httpapitest", "internal/testing/otlptest", "internal/listener", "internal/testing/pipenet",
		"internal/operations", "internal/broker/queue", "internal/broker/quirk", "internal/broker/store", "internal/redisstore", "internal/testing/redistest", "internal/servicebus/sas", "internal/servicebus/link", "internal/servicebus/rest", "internal/listener/tlsrecord", "internal/operator/inject/admission", "scheduler", "scheduler/index", "scheduler/journal"},
	others: []string{azcore, azservicebus, goamqp, websocket, miniredis, prometheus, sync, yaml, zap, "github.com/cloudevents/sdk-go", "github.com/google/go-cmp",
		kubeapi, kubemachinery, "gopkg.in/evanphx/json-patch.v4",
		"github.com/santhosh-tekuri/jsonschema", pflag,
		"github.com/rogpeppe/go-internal", "pgregory.net/rapid", "go.opentelemetry.io/proto/otlp", "google.golang.org/grpc"},
}

// Whole-flow tests and load, and a file that only keeps modules in go.mod.
var unbound = []string{"test/e2e", "test/simulate", "test/sdk", "test/foreign", "test/web", "internal/testing/wiretap", "test/bench", "test/dapr", "deploy", "internal/deps"}

// The tests of these packages have no allowance: they are below the packages that it names.
var plainTests = []string{"internal/broker/queue", "internal/broker/filter", "internal/amqp", "internal/testing/pipenet"}

// It parses the files instead of asking `go list`, whose answer the test cache
// would not see change.
func TestImportsKeepTheirDirection(t *testing.T) {
	root := filepath.Join("..", "..", "..")
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
		r, ok := allowed[folder]
		if !ok {
			t.Errorf("%s: the folder %s is unknown; give it a row in this test, and a package comment that says what it is for", rel, folder)
			return nil
		}
		seen[folder] = true
		checkFile(t, file, rel, folder, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range allowed {
		if !seen[folder] {
			t.Errorf("%s has no Go file; remove its row from allowed", folder)
		}
	}
}

func checkFile(t *testing.T, file, rel, folder string, r allowance) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	ours, others := slices.Concat(r.ours, []string{folder}), r.others
	if strings.HasSuffix(rel, "_test.go") {
		ours = append(ours, "internal/testing/testseed", "internal/testing/freeport", "internal/testing/racetest")
		others = slices.Concat(others, allowedInTests.others)
		if !slices.Contains(plainTests, folder) {
			ours = slices.Concat(ours, allowedInTests.ours)
		}
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		switch {
		case imported == azidentity && folder != "internal/connect":
			t.Errorf("%s imports azidentity; only internal/connect may", rel)
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
	root := os.DirFS(filepath.Join("..", "..", ".."))
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
