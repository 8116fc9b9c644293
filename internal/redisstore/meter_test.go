// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// fed is what a meter says of b, in pieces of random sizes.
func fed(bounds meterBounds, b []byte, seed uint64) (*replyMeter, error) {
	m := &replyMeter{bounds: bounds}
	dice := rand.New(rand.NewPCG(seed, 0))
	for len(b) > 0 {
		n := 1 + dice.IntN(min(len(b), 1+int(seed%40)))
		if err := m.feed(b[:n]); err != nil {
			return m, err
		}
		b = b[n:]
	}
	return m, nil
}

func TestAnswersWithinTheBoundsPass(t *testing.T) {
	bulk := "$" + strconv.Itoa(mostBulk) + "\r\n" + strings.Repeat("x", mostBulk) + "\r\n"
	for _, answer := range []string{
		"+OK\r\n", "-ERR no\r\n", ":7\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "*0\r\n", "$3\r\na\r\n\r\n", bulk,
		"*3\r\n*2\r\n$2\r\nid\r\n$6\r\nrecord\r\n$0\r\n\r\n$1\r\n5\r\n",
		"*" + strconv.Itoa(mostElements) + "\r\n" + strings.Repeat(":1\r\n", mostElements),
		strings.Repeat("*1\r\n", mostDepth) + ":1\r\n",
		"*1\r\n$-1\r\n", "*2\r\n$-1\r\n*-1\r\n",
		"_\r\n", ",3.14\r\n", "#t\r\n", "(3492890328409238509324850943850943825024385\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n", "~1\r\n:1\r\n", ">2\r\n+message\r\n%0\r\n",
		"|1\r\n+ttl\r\n:3\r\n*2\r\n|1\r\n+ttl\r\n:4\r\n:1\r\n|0\r\n:2\r\n",
	} {
		for seed := range uint64(80) {
			if len(answer) > 1<<16 && seed != 39 {
				continue
			}
			m, err := fed(ourBounds, []byte(answer), seed)
			if err != nil || m.midway() {
				t.Fatalf("%.60q: %v, midway %v; want it whole", answer, err, m.midway())
			}
		}
		m, err := fed(ourBounds, []byte(answer[:len(answer)-1]), 39)
		if err != nil || !m.midway() {
			t.Errorf("%.60q without its end: %v, midway %v; want it midway", answer, err, m.midway())
		}
	}
}

func TestAnswersBeyondTheBoundsFail(t *testing.T) {
	for _, answer := range []string{
		"*2000000000\r\n", "*262145\r\n", "%131073\r\n", "~262145\r\n", ">262145\r\n", "|131072\r\n", "$1048577\r\n", "!1048577\r\n", "=1048577\r\n",
		"*200000\r\n*200000\r\n", "*2\r\n*200000\r\n" + strings.Repeat(":1\r\n", 200000) + "*200000\r\n",
		"$99999999999999999999999\r\n", "*18446744073709551616\r\n", "*9223372036854775808\r\n", "$-2\r\n", "*-2\r\n", "%-1\r\n", "$+5\r\n", "$\r\n", "* 1\r\n", "*0x10\r\n", "$5\n", "$?\r\n", "*?\r\n",
		"+" + strings.Repeat("x", mostLine+1), "(" + strings.Repeat("9", mostLine+1), strings.Repeat("*1\r\n", mostDepth+1), strings.Repeat("|1\r\n+a\r\n:1\r\n", mostElements),
		strings.Repeat("|0\r\n", mostElements+1), "HTTP/1.1 400 Bad Request\r\n", "\r\n", ".\r\n", ";4\r\n", "\x00",
	} {
		for seed := range uint64(80) {
			if len(answer) > 1<<12 && seed != 39 {
				continue
			}
			var refused *excessError
			if _, err := fed(ourBounds, []byte(answer), seed); !errors.As(err, &refused) {
				t.Fatalf("%.60q (%d): %v, want an excess", answer, seed, err)
			}
		}
	}
}

// reference reads one answer after the other in the plainest way.
type reference struct {
	r        *bufio.Reader
	bounds   meterBounds
	elements int
}

var errTooMuch = errors.New("too much")

func (p *reference) line() (string, error) {
	var line []byte
	for {
		c, err := p.r.ReadByte()
		if err != nil {
			return "", err
		}
		if line = append(line, c); len(line) > p.bounds.line {
			return "", errTooMuch
		}
		if c == '\n' {
			return string(line), nil
		}
	}
}

func (p *reference) answer(depth int) error {
	kind, err := p.r.ReadByte()
	if err != nil {
		return err
	}
	switch kind {
	default:
		return errTooMuch
	case '+', '-', ':', '_', ',', '#', '(':
		_, err := p.line()
		return err
	case '$', '!', '=', '*', '~', '>', '%', '|':
	}
	// A length has 20 digits at most, also one that has not ended.
	var line []byte
	for !bytes.HasSuffix(line, []byte("\n")) {
		c, err := p.r.ReadByte()
		if err != nil {
			return err
		}
		if line = append(line, c); len(line) > 22 || len(line) > p.bounds.line {
			return errTooMuch
		}
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok {
		return errTooMuch
	}
	if text == "-1" && (kind == '$' || kind == '*') {
		return nil
	}
	length, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strings.HasPrefix(text, "+") {
		return errTooMuch
	}
	n := int(min(length, 1<<40))
	switch kind {
	case '$', '!', '=':
		if n > p.bounds.bulk {
			return errTooMuch
		}
		_, err := io.CopyN(io.Discard, p.r, int64(n)+2)
		return err
	case '%', '|':
		n *= 2
	}
	if kind == '|' {
		p.elements++
	}
	if p.elements += n; p.elements > p.bounds.elements || n > 0 && depth == p.bounds.depth {
		return errTooMuch
	}
	for range n {
		if err := p.answer(depth + 1); err != nil {
			return err
		}
	}
	if kind == '|' {
		return p.answer(depth) // what it is about
	}
	return nil
}

// A meter that is fed in pieces fails where one that has everything and reads it in the plainest
// way does, and nowhere else.
func FuzzMeterAndReferenceAgree(f *testing.F) {
	for _, answer := range []string{
		"+OK\r\n:1\r\n", "*2\r\n$3\r\nabc\r\n*1\r\n:1\r\n", "*2000000000\r\n", "$2000000000\r\n", "%1\r\n+a\r\n|1\r\n+b\r\n:1\r\n:2\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
		"=5\r\ntxt:a\r\n!1\r\nx\r\n>1\r\n+x\r\n~2\r\n#t\r\n_\r\n", "*3\r\n*3\r\n*3\r\n*3\r\n", "$-1\r\n*-1\r\n%-1\r\n", "$?\r\n;4\r\n", "|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n:1\r\n", "$00000000000000000000000000001\r\n",
	} {
		f.Add([]byte(answer), uint64(7))
	}
	bounds := meterBounds{bulk: 40, line: 60, elements: 12, depth: 4}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		p := &reference{r: bufio.NewReader(bytes.NewReader(b)), bounds: bounds}
		var want error
		for want == nil {
			want = p.answer(0)
		}
		m, err := fed(bounds, b, seed)
		if (err != nil) != errors.Is(want, errTooMuch) {
			t.Fatalf("%q: the meter says %v, the reference %v", b, err, want)
		}
		if err == nil && !m.midway() && !errors.Is(want, io.EOF) {
			t.Errorf("%q: the meter takes it for whole, the reference says %v", b, want)
		}
		if len(m.open) > bounds.depth || m.elements > bounds.elements || len(m.head) > 64 {
			t.Errorf("%q: the meter keeps %d arrays, %d elements and %d bytes", b, len(m.open), m.elements, len(m.head))
		}
	})
}

func BenchmarkMeter(b *testing.B) {
	answer := []byte("*3\r\n*40\r\n" + strings.Repeat("$300\r\n"+strings.Repeat("x", 300)+"\r\n", 40) + "$0\r\n\r\n$1\r\n5\r\n")
	b.SetBytes(int64(len(answer)))
	m := &replyMeter{bounds: ourBounds}
	for b.Loop() {
		m.reset()
		if err := m.feed(answer); err != nil {
			b.Fatal(err)
		}
	}
}
