// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each driver calls the example of a language for each line of its input (secret, id, timestamp,
// signatures, body, separated by tabs) and prints true or false.
var exampleDrivers = map[string]struct {
	fence   string
	file    string // of the example
	driver  string // file of the driver; "" = it is appended to the example
	text    string
	command []string // in the directory of both
}{
	"Go": {"go", "verify.go", "main.go", `package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Split(in.Text(), "\t")
		h := http.Header{}
		h.Set("webhook-id", f[1])
		h.Set("webhook-timestamp", f[2])
		h.Set("webhook-signature", f[3])
		fmt.Println(verify(f[0], h, []byte(f[4])))
	}
}
`, []string{"go", "run", "verify.go", "main.go"}},
	"JavaScript": {"js", "verify.mjs", "main.mjs", `import { readFileSync } from 'node:fs';
import { verify } from './verify.mjs';
for (const line of readFileSync(0, 'utf8').trimEnd().split('\n')) {
  const [secret, id, timestamp, signature, body] = line.split('\t');
  const headers = { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature };
  console.log(verify(secret, headers, Buffer.from(body)));
}
`, []string{"node", "main.mjs"}},
	"Python": {"python", "verify.py", "main.py", `import sys
from verify import verify
for line in sys.stdin:
    secret, id, timestamp, signature, body = line.rstrip("\n").split("\t")
    headers = {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature}
    print(str(verify(secret, headers, body.encode())).lower())
`, []string{"python3", "-B", "main.py"}},
	"Java": {"java", "Webhooks.java", "", `
class Main {
    public static void main(String[] args) throws Exception {
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
            String[] f = line.split("\t", -1);
            System.out.println(Webhooks.verify(f[0], f[1], f[2], f[3], f[4].getBytes(StandardCharsets.UTF_8)));
        }
    }
}
`, []string{"java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "Webhooks.java"}},
}

func TestTheExamplesOfThePageCheckSignatures(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	input, want := signedRequests(t)
	for name, d := range exampleDrivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example := regexp.MustCompile("(?s)```" + d.fence + "\n(.*?)```").FindSubmatch(page)
			if example == nil {
				t.Fatal("the page has no example")
			}
			if _, err := exec.LookPath(d.command[0]); err != nil {
				t.Skip(err)
			}
			dir, text := t.TempDir(), string(example[1])
			if d.driver == "" { // java runs the first class of a file
				class := strings.Index(text, "class Webhooks")
				text = text[:class] + d.text + text[class:]
			} else if err := os.WriteFile(filepath.Join(dir, d.driver), []byte(d.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, d.file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), d.command[0], d.command[1:]...)
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
			out, err := cmd.CombinedOutput()
			if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != want {
				t.Errorf("the example says %s, %v, want %s", out, err, want)
			}
		})
	}
}

// signedRequests returns requests as lines, and which of them are good.
func signedRequests(t *testing.T) (lines, good string) {
	t.Helper()
	const body = `{"subject":"ordér-1"}`
	var input, want []string
	add := func(ok bool, secrets []string, at time.Time, signed, sent string) {
		s, err := newSigner(secrets)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		s.sign(h, "id-1", at, []byte(signed))
		input = append(input, strings.Join([]string{secretOf('n'), "id-1", h.Get("webhook-timestamp"), h.Get("webhook-signature"), sent}, "\t"))
		want = append(want, fmt.Sprint(ok))
	}
	now := time.Now()
	add(true, []string{secretOf('n')}, now, body, body)
	add(true, []string{secretOf('o'), secretOf('n')}, now, body, body)
	add(true, []string{secretOf('n')}, now.Add(-4*time.Minute), body, body)
	add(false, []string{secretOf('n')}, now.Add(-6*time.Minute), body, body)
	add(false, []string{secretOf('n')}, now.Add(6*time.Minute), body, body)
	add(false, []string{secretOf('o')}, now, body, body)
	add(false, []string{secretOf('n')}, now, body, body+" ")
	input = append(input, strings.Join([]string{secretOf('n'), "id-1", "soon", "v1,x", body}, "\t"), strings.Join([]string{secretOf('n'), "", "", "", body}, "\t"))
	return strings.Join(input, "\n") + "\n", strings.Join(append(want, "false", "false"), " ")
}
