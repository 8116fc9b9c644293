// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsNotSeenIsEscaped(t *testing.T) {
	for s, want := range map[string]string{
		"order-1": "order-1", "": "", "Bestellung für Zoë, 注文 😀": "Bestellung für Zoë, 注文 😀", "\u0645\u06cc\u200c\u062e": "\u0645\u06cc\u200c\u062e",
		"a\nb\tc\r": `a\nb\tc\r`, "\x00\x1b[2J\x7f": `\u0000\u001b[2J\u007f`, "\u0080\u0085\u009b2J\u009f": `\u0080\u0085\u009b2J\u009f`,
		"\ufeff\u2028\u2029": `\ufeff\u2028\u2029`, "\u202a\u202e\u2066\u2069\u200e\u200f\u061c": `\u202a\u202e\u2066\u2069\u200e\u200f\u061c`,
		"\u200b\u2060\u00ad": `\u200b\u2060\u00ad`, "\U000e0041": `\udb40\udc41`, "a\x9bb\xff": "a\ufffdb\ufffd", `\u0085`: `\u0085`,
	} {
		if got := Text(s); got != want {
			t.Errorf("Text(%q) = %q, want %q", s, got, want)
		}
	}
	if got, want := Lines("a\n\tb\r\x85\u0085"), "a\n\tb\\r\ufffd\\u0085"; got != want {
		t.Errorf("Lines = %q, want %q", got, want)
	}
}

func TestJSONStaysTheSame(t *testing.T) {
	in := map[string]any{"id\u0085": "\x00\x1f\x7f\u0080\u009f\ufeff\u2028\u202e\U000e0041\\u0085 é 😀\n", "n": 1.5, "list": []any{"\u2066", nil, true}}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "\t")
	if err := e.Encode(in); err != nil {
		t.Fatal(err)
	}
	escaped := JSON(b.Bytes())
	if hidden := Hidden(escaped); hidden != "" {
		t.Errorf("the escaped JSON has %s", hidden)
	}
	var out map[string]any
	if err := json.Unmarshal(escaped, &out); err != nil {
		t.Fatalf("%v: %s", err, escaped)
	}
	again, err := json.Marshal(out)
	want, wantErr := json.Marshal(in)
	if err != nil || wantErr != nil || !bytes.Equal(again, want) {
		t.Errorf("read back %s, %v; want %s, %v", again, err, want, wantErr)
	}
}

func TestWriteJSONEscapesWhatEncodingJSONLeaves(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]string{"id": "a<b\u0085"}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "{\n  \"id\": \"a<b\\u0085\"\n}\n"; got != want {
		t.Errorf("WriteJSON = %q, want %q", got, want)
	}
	if err := WriteJSON(&b, func() {}); err == nil {
		t.Error("WriteJSON of a function = nil, want an error")
	}
	broken := errors.New("gone")
	if err := WriteJSON(failing{broken}, 1); !errors.Is(err, broken) {
		t.Errorf("WriteJSON to a writer that fails = %v, want its error", err)
	}
}

func TestAWriterDoesNotMindWhereWritesAreCut(t *testing.T) {
	text := []byte("é😀\u0085\x1b[31m\u202e注\n\x9b\tend\xf0\x9f x\xc2")
	want := Lines(string(text[:len(text)-1])) // what has not ended is not written
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 0))
		var out bytes.Buffer
		w := NewWriter(&out)
		for b := text; len(b) > 0; {
			n := 1 + dice.IntN(min(len(b), 5))
			if wrote, err := w.Write(b[:n]); wrote != n || err != nil {
				t.Fatalf("Write = %d, %v; want %d, nil", wrote, err, n)
			}
			b = b[n:]
		}
		if out.String() != want {
			t.Fatalf("seed %d: wrote %q, want %q", seed, out.String(), want)
		}
	}
	if w := NewWriter(io.Discard); NewWriter(w) != w || w.Unwrap() != io.Discard {
		t.Error("a Writer to a Writer is another, want the same")
	}
	broken := errors.New("broken")
	if n, err := NewWriter(failing{broken}).Write([]byte("x")); n != 0 || !errors.Is(err, broken) {
		t.Errorf("Write to what fails = %d, %v; want 0 and its error", n, err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzNothingHiddenComesOut(f *testing.F) {
	f.Add("order\u0085\x9b", uint8(3))
	f.Fuzz(func(t *testing.T, s string, cut uint8) {
		if got := Text(s); Hidden([]byte(got)) != "" || strings.ContainsAny(got, "\n\t") || !utf8.ValidString(got) {
			t.Errorf("Text(%q) = %q", s, got)
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		i := min(int(cut), len(s))
		_, _ = io.WriteString(w, s[:i]) // a buffer takes all
		_, _ = io.WriteString(w, s[i:])
		if Hidden(out.Bytes()) != "" || !strings.HasPrefix(Lines(s), out.String()) {
			t.Errorf("written %q of %q, want the beginning of %q", out.String(), s, Lines(s))
		}
	})
}
