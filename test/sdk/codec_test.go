// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

var update = flag.Bool("update", false, "write the golden file of the codec instead of comparing with it")

const (
	corpusFile = "../../internal/amqp/testdata/peers/corpus.json"
	goldenFile = "../../internal/amqp/testdata/peers/corpus.golden"

	codecTimeout = 5 * time.Minute
)

type corpusCase struct {
	Name   string
	Values []any // see corpus_test.go in internal/amqp
}

// Two codecs of others over the corpus: what they write is the golden file, which the tests
// of internal/amqp read; and what we write they read as we mean it.
func TestCodecAgreesWithPeers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python and their packages; not with -short")
	}
	scratch := t.TempDir()
	installed := install(t)["js"]
	ctx, cancel := context.WithTimeout(t.Context(), codecTimeout)
	defer cancel()
	if out, err := suites[0].build(ctx, installed, scratch).CombinedOutput(); err != nil {
		t.Fatalf("copying: %v\n%s", err, out)
	}
	for peer, command := range map[string][]string{
		"rhea": {"node", filepath.Join(scratch, "codec.js")},
		// The system's own Python: Debian has proton for no other.
		"proton": {"/usr/bin/python3", "-B", "python/codec.py"},
	} {
		t.Run(peer, func(t *testing.T) {
			wrote := run(ctx, t, nil, append(command, "encode", corpusFile)...)
			if *update {
				if err := os.WriteFile(goldenFile, wrote, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(goldenFile)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(golden), string(wrote)); diff != "" {
				t.Errorf("wrote something else than before (-before +now):\n%s", diff)
			}
			compareReading(t, run(ctx, t, ours(t), append(command, "decode")...))
		})
	}
}

func run(ctx context.Context, t *testing.T, stdin []byte, command ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, tail(stderr.Bytes(), 4<<10))
	}
	return out
}

func readCorpus(t *testing.T) (cases []corpusCase) {
	t.Helper()
	text, err := os.ReadFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// ours is the corpus as we write it, in lines `name hex`.
func ours(t *testing.T) []byte {
	t.Helper()
	var lines bytes.Buffer
	for _, c := range readCorpus(t) {
		var encoded []byte
		for _, v := range c.Values {
			var err error
			if encoded, err = amqp.AppendValue(encoded, meaning(t, v)); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
		}
		fmt.Fprintf(&lines, "%s %x\n", c.Name, encoded)
	}
	return lines.Bytes()
}

// compareReading compares what a peer has read with the corpus.
func compareReading(t *testing.T, lines []byte) {
	t.Helper()
	read := map[string][]any{}
	for line := range strings.Lines(string(lines)) {
		name, text, _ := strings.Cut(line, " ")
		var values []any
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		read[name] = values
	}
	for _, c := range readCorpus(t) {
		if diff := cmp.Diff(c.Values, read[c.Name]); diff != "" {
			t.Errorf("%s: (-meant +read)\n%s", c.Name, diff)
		}
	}
}

// meaning is the value that a notation of the corpus stands for.
func meaning(t *testing.T, v any) any {
	t.Helper()
	n := v.([]any)
	switch kind := n[0].(string); kind {
	case "null":
		return nil
	case "list":
		list := amqp.List{}
		for _, e := range n[1].([]any) {
			list = append(list, meaning(t, e))
		}
		return list
	case "map":
		m := amqp.Map{}
		for _, e := range n[1].([]any) {
			pair := e.([]any)
			m = append(m, amqp.Pair{Key: meaning(t, pair[0]), Value: meaning(t, pair[1])})
		}
		return m
	case "array":
		array := amqp.Array{}
		for _, text := range n[2].([]any) {
			array = append(array, scalar(t, n[1].(string), text.(string)))
		}
		return array
	case "described":
		return amqp.Described{Descriptor: meaning(t, n[1]), Value: meaning(t, n[2])}
	default:
		return scalar(t, kind, n[1].(string))
	}
}

func scalar(t *testing.T, kind, text string) any {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatalf("%s %q: %v", kind, text, err)
		}
	}
	signed := func(size int) int64 {
		i, err := strconv.ParseInt(text, 10, size)
		must(err)
		return i
	}
	unsigned := func(base, size int) uint64 {
		u, err := strconv.ParseUint(text, base, size)
		must(err)
		return u
	}
	octets := func() []byte {
		b, err := hex.DecodeString(text)
		must(err)
		return b
	}
	switch kind {
	case "boolean":
		return text == "true"
	case "ubyte":
		return uint8(unsigned(10, 8))
	case "ushort":
		return uint16(unsigned(10, 16))
	case "uint":
		return uint32(unsigned(10, 32))
	case "ulong":
		return unsigned(10, 64)
	case "byte":
		return int8(signed(8))
	case "short":
		return int16(signed(16))
	case "int":
		return int32(signed(32))
	case "long":
		return signed(64)
	case "float":
		return math.Float32frombits(uint32(unsigned(16, 32)))
	case "double":
		return math.Float64frombits(unsigned(16, 64))
	case "decimal32":
		return amqp.Decimal32(octets())
	case "decimal64":
		return amqp.Decimal64(octets())
	case "decimal128":
		return amqp.Decimal128(octets())
	case "char":
		return amqp.Char(signed(32))
	case "timestamp":
		return amqp.Timestamp(signed(64))
	case "uuid":
		return amqp.UUID(octets())
	case "binary":
		return octets()
	case "string":
		return text
	case "symbol":
		return amqp.Symbol(text)
	}
	t.Fatalf("no type %q", kind)
	return nil
}
