// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	// stepTimeout bounds one step in the browser, on a machine that runs other tests as well.
	stepTimeout = 2 * time.Minute
	hint        = "`make sdks` installs what these tests need, when run as root"
)

// installed is what all tests share: the browser and axe-core.
var installed struct {
	once    sync.Once
	err     error
	axe     string
	browser context.Context
	end     context.CancelFunc
}

func TestMain(m *testing.M) {
	code := m.Run()
	if installed.end != nil {
		installed.end()
	}
	os.Exit(code)
}

// prepare starts Chromium, once for all tests.
func prepare(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs chromium; not with -short")
	}
	if installed.once.Do(func() { installed.err = setUp() }); installed.err != nil {
		t.Fatal(installed.err)
	}
}

// setUp looks up what is installed, and starts Chromium.
func setUp() error {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%w; %s", err, hint)
	}
	var stderr bytes.Buffer
	install := exec.Command("../sdk/install.sh")
	install.Stderr = &stderr
	out, err := install.Output()
	if err != nil {
		return fmt.Errorf("install.sh: %w; %s\n%s", err, hint, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		if folder, ok := strings.CutPrefix(strings.TrimSpace(line), "js="); ok {
			code, err := os.ReadFile(filepath.Join(folder, "node_modules", "axe-core", "axe.min.js"))
			if err != nil {
				return err
			}
			installed.axe = string(code)
		}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(2*time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which root cannot have
	}
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	browser, endBrowser := chromedp.NewContext(allocator)
	installed.browser, installed.end = browser, func() { endBrowser(); endAllocator() }
	return chromedp.Do(browser)
}

// A screen is what a tab is shown on.
type screen struct {
	width, height int64
	dark          bool
}

var (
	desktop = screen{1200, 860, false}
	night   = screen{1200, 860, true}
	phone   = screen{390, 844, true}
)

// A tab is a page of the browser, on the dashboard of a scene.
type tab struct {
	*scene
	ctx context.Context

	mu       sync.Mutex
	problems []string // that no page may have
}

// open opens a tab. A fault in it fails the test at its end.
func (s *scene) open(on screen) *tab {
	s.Helper()
	prepare(s.T)
	ctx, cancel := chromedp.NewContext(installed.browser)
	t := &tab{scene: s, ctx: ctx}
	s.Cleanup(func() {
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, p := range t.problems {
			s.Errorf("in the browser: %s", p)
		}
	})
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.problem("exception: " + e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			// That a page answers with an error is what some tests want.
			if e.Entry.Level == log.EntryLevelError && !strings.HasPrefix(e.Entry.Text, "Failed to load resource") {
				t.problem(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
			}
		case *page.EventJavascriptDialogOpening:
			t.problem("dialog: " + e.Message)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, s.base) {
				t.problem("request to another host: " + e.Request.URL)
			}
		}
	})
	if err != nil {
		s.Fatal(err)
	}
	scheme := "light"
	if on.dark {
		scheme = "dark"
	}
	t.run(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: on.width, Height: on.height, DeviceScaleFactor: 1, Mobile: on.width < 500}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
	return t
}

// command is an action that runs one command of the protocol.
func command[P any](cmd cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, cmd, params)
		return err
	})
}

func (t *tab) problem(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, text)
}

// run runs actions, and fails the test when they do not end in time.
func (t *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	get(t, chromedp.Steps(actions...))
}

// get runs an action and returns its value.
func get[T any](t *tab, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// eval evaluates an expression of JavaScript, a promise too.
func eval[T any](t *tab, expression string) T {
	t.Helper()
	return get(t, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise, chromedp.EvalAsValue))
}

// visit opens a page.
func (t *tab) visit(path string) {
	t.Helper()
	t.run(chromedp.Navigate(t.base + t.root + path))
}

// wait waits until an expression is true. While the browser goes to another page there is none to
// evaluate it on.
func (t *tab) wait(expression string) {
	t.Helper()
	for end := time.Now().Add(stepTimeout); ; time.Sleep(30 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression, chromedp.EvalAsValue))
		cancel()
		if err == nil && is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not become true: %v; the page says\n%s", expression, err, eval[string](t, "document.body.innerText"))
		}
	}
}

// shows waits until an element has a text in it.
func (t *tab) shows(selector, text string) {
	t.Helper()
	t.wait(fmt.Sprintf("!!document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// accessible has axe-core check the page.
func (t *tab) accessible(where string) {
	t.Helper()
	eval[int](t, installed.axe+";0")
	result := eval[string](t, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v =>
		({id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map(n => n.html + " " + n.failureSummary)}))))`)
	var violations []struct {
		ID, Help string
		Nodes    []string
	}
	if err := json.Unmarshal([]byte(result), &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Errorf("%s: axe: %s: %s:\n%s", where, v.ID, v.Help, strings.Join(v.Nodes, "\n"))
	}
}

// fits checks that neither the page nor a table in it needs scrolling to the side.
func (t *tab) fits(where string) {
	t.Helper()
	beyond := eval[[]string](t, `document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
		.filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest(".scroll, nav")).slice(0, 5).map(e => e.outerHTML.slice(0, 200))`)
	if len(beyond) > 0 {
		t.Errorf("%s is wider than the screen: %q", where, beyond)
	}
	cut := eval[[]string](t, `[...document.querySelectorAll("div.scroll")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.querySelector("thead")?.innerText ?? e.id)`)
	if len(cut) > 0 {
		t.Errorf("%s has tables that the screen cuts: %q", where, cut)
	}
}
