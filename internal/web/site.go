// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"overdue/internal/escape"
	"overdue/internal/history"
)

// A site is what all pages of a port have in common.
type site struct {
	home, base    string // of its first page, and of everything else
	role, version string
	nav           []navLink
}

// A navLink leads to a page of the site, or of another one.
type navLink struct{ Page, Name, Link string }

// A page is what all pages show.
type page struct {
	Page, Title, Role, Version string
	Home, Base                 string
	Nav                        []navLink
	Events                     string        // link to the stream that keeps it up to date; "" = none
	Gaps                       []history.Gap // of the missed deadlines on it
	Error                      string
}

func (p *page) fail(err error) { p.Error = err.Error() }

func (s *site) page(name, title string) page {
	return page{
		Page:    name,
		Title:   title,
		Role:    s.role,
		Version: s.version,
		Home:    s.home,
		Base:    s.base,
		Nav:     s.nav,
	}
}

//go:embed assets
var assets embed.FS

// pages are parsed for the first page: most processes show none.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"text": escape.Text, "lines": escape.Lines, "parts": parts, "number": number, "span": span, "clock": clock,
		"ago": func(t time.Time) moment { return momentOf(t, time.Now()) },
	}).ParseFS(assets, "assets/*.html"))
})

// parts splits a name where a narrow screen may break it: behind a slash, and before a word in it.
func parts(name string) (all []string) {
	start, before := 0, ' '
	for i, c := range name {
		if before == '/' || unicode.IsUpper(c) && unicode.IsLower(before) {
			all, start = append(all, escape.Text(name[start:i])), i
		}
		before = c
	}
	return append(all, escape.Text(name[start:]))
}

// serveAssets serves what the pages load.
func (s *site) serveAssets(mux *http.ServeMux) {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the name is a constant
	}
	for _, name := range []string{"style.css", "dashboard.js", "icon.svg"} {
		mux.HandleFunc("GET "+s.base+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache") // another version may be served at the same address
			http.ServeFileFS(w, r, files, name)
		})
	}
}

// policy lets a page load what its site serves, and nothing else. It allows no inline script or
// style, so that markup in a message-id stays text even if a template forgot to escape it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect forbids what no page needs.
func protect(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with none at all, a form has no origin
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// show renders a page as a whole before it writes any of it. If there is an error, the page says it.
func show(w http.ResponseWriter, name string, v interface{ fail(error) }, err error) {
	status := http.StatusOK
	if err != nil {
		v.fail(err)
		status = statusOf(err)
	}
	var page bytes.Buffer
	if err := pages().ExecuteTemplate(&page, name, v); err != nil {
		cannotShow(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // an error is the caller's loss only
}

func cannotShow(w http.ResponseWriter, err error) {
	http.Error(w, escape.Lines("the page cannot be shown: "+err.Error()), http.StatusInternalServerError)
}

// query returns the search of a request, cut to a length that costs little.
func query(r *http.Request) string {
	return bounded(strings.TrimSpace(r.URL.Query().Get("q")), maxQuery)
}

// parameter returns a parameter of a request, cut in the same way.
func parameter(r *http.Request, name string) string {
	return bounded(r.URL.Query().Get(name), maxParameter)
}

// isPart reports whether one of the texts has q in it, in any case.
func isPart(q string, texts ...string) bool {
	q = strings.ToLower(q)
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), q) })
}

func bounded(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
}

// values is the query of a link. Parameters without a value are left out.
func values(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q.Encode()
}
