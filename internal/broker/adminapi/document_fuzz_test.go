// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/servicebus/atom"
)

// A document that is read from a body and written again reads the same.
func FuzzDocument(f *testing.F) {
	files, err := filepath.Glob("testdata/bodies/*.xml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no bodies: %v", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(body))
	}
	f.Add(`<a:e xmlns:a="urn:a" xmlns="urn:d" b:c="&#9;" xml:lang="en"><f a:g=""/><h xmlns="" xmlns:a="urn:h" a:i="&quot;">&#13;&lt;</h></a:e>`)
	f.Fuzz(func(t *testing.T, body string) {
		n, err := parse(strings.NewReader(body))
		if err != nil {
			return
		}
		in := func(n *node) string {
			return markup(func(w writer) {
				w.open("RuleDescription", "xmlns", nsEntity, "xmlns:i", nsInstance)
				n.write(w)
				w.close("RuleDescription")
			})
		}
		stable(t, body, n, func(n *node) string {
			if n.name.Local == "RuleDescription" && len(n.children) == 1 && n.parent == nil {
				return in(n.children[0])
			}
			return in(n)
		})
		stable(t, body, n, func(n *node) string {
			r, err := readRule(n)
			if err != nil {
				return ""
			}
			return markup(func(w writer) {
				w.open("RuleDescription", "xmlns", nsEntity, "xmlns:i", nsInstance)
				writeFilter(w, &r.Filter, true)
				writeAction(w, &r.Action, false)
				w.text("Name", r.Name)
				w.close("RuleDescription")
			})
		})
		stable(t, body, n, described(queueFields, broker.QueueInfo{}))
		stable(t, body, n, described(topicFields, broker.TopicInfo{}))
		stable(t, body, n, described(subscriptionFields, broker.SubscriptionInfo{}))
	})
}

// described reads fields into v and writes them.
func described[T any](fields []field[T], v T) func(*node) string {
	return func(n *node) string {
		v := v
		if readFields(&call{version: "2024-05"}, n, fields, &v) != nil {
			return ""
		}
		var shown []field[T] // what can be read back
		for _, f := range fields {
			if f.read != nil && n.child(f.name) != nil {
				shown = append(shown, f)
			}
		}
		return markup(func(w writer) { writeFields(w, "Description", "9999", shown, &v, nil, nil) })
	}
}

// stable asserts that through changes nothing in its own output. It returns "" for a document that
// it refuses.
func stable(t *testing.T, body string, n *node, through func(*node) string) {
	t.Helper()
	once := through(n)
	if once == "" {
		return
	}
	again, err := parse(strings.NewReader(once))
	if err != nil {
		t.Fatalf("%q\nwas written as\n%q\nwhich is not well-formed: %v", body, once, err)
	}
	if twice := through(again); twice != once {
		t.Fatalf("%q\nwas written as\n%q\nand that as\n%q", body, once, twice)
	}
}

// parse reads one document, see package atom.
func parse(r io.Reader) (*node, error) {
	root, err := atom.Parse(r)
	if err != nil {
		return nil, err
	}
	return nodeOf(root, nil), nil
}
