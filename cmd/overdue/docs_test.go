// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/config"
)

var update = flag.Bool("update", false, "write the page that is generated instead of comparing with it")

// The page of commands has to be what the commands would generate now.
func TestGeneratedPagesAreFresh(t *testing.T) {
	const file = "../../docs/reference/cli.md"
	want := commandLine()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is stale; run `make docs` (-code +file):\n%s", file, diff)
	}
}

func TestExampleOfTheBrokerIsAccepted(t *testing.T) {
	page, err := os.ReadFile("../../docs/broker/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no ```yaml block in docs/broker/README.md")
	}
	c, err := loadText(t, text, nil, nil)
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	cfg, _ := embeddedBroker(c, config.RoleBroker, zap.NewNop())
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatalf("the broker refuses the example: %v", err)
	}
	defer b.Close()
	if n := len(b.Default().Entities()); n != 6 {
		t.Errorf("the example makes %d entities, want two queues, a topic and its three subscriptions", n)
	}
}
