// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"overdue/internal/testing/redistest"
)

// aclRule is that of docs/operate/redis.md.
func aclRule(t *testing.T) []string {
	t.Helper()
	return aclRules(t)[0]
}

// aclRules are that, and what it takes more to keep companions.
func aclRules(t *testing.T) (rules [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operate/redis.md")
	must(t, err)
	for _, rule := range regexp.MustCompile(`(?m)^ACL SETUSER overdue .*$`).FindAllString(string(page), -1) {
		rules = append(rules, strings.Fields(rule))
	}
	if len(rules) != 2 {
		t.Fatalf("docs/operate/redis.md has %d lines that make a user, want 2", len(rules))
	}
	return rules
}

// The trial also covers the commands that keep companions, where Redis keeps them.
func TestATrialOfCompanionsMissesWhatTheyTake(t *testing.T) {
	r := redistest.Start(t)
	rules := aclRules(t)
	r.Must(rules[0]...)
	c := open(t, "redis://overdue:secret@"+r.Addr).Companions()
	if err := c.Try(t.Context()); err == nil || !strings.Contains(err.Error(), "can't run this command") {
		t.Errorf("Try = %v, want that it may not", err)
	}
	r.Must(rules[1]...)
	must(t, c.Try(t.Context()))
	if left := r.Must("KEYS", "*"); left != "*0\r\n" {
		t.Errorf("a trial leaves %q", left)
	}
}

// A checkup finds nothing wrong with the user of docs/operate/redis.md, and each command that is
// taken from it.
func TestACheckupTriesEveryCommandThatThePageAllows(t *testing.T) {
	r := redistest.Start(t)
	rule := aclRule(t)
	// Those that a client sends to connect, or a cluster's.
	byTheClient := []string{"select", "cluster|slots", "cluster|shards", "readonly"}
	r.Must(rule...)
	check := func(want ...string) {
		t.Helper()
		c, err := open(t, "redis://overdue:secret@"+r.Addr).Checkup(t.Context())
		must(t, err)
		if !slices.Equal(c.Denied, want) || c.KeyDenied || c.Refusal != "" || c.RoundTrip <= 0 {
			t.Errorf("checkup %+v, want %q denied and nothing else", c, want)
		}
		if slices.Contains(want, "info") != (len(c.Servers) == 0) {
			t.Errorf("servers %+v with %q denied", c.Servers, want)
		}
	}
	check()
	for _, may := range rule {
		command, ok := strings.CutPrefix(may, "+")
		if !ok || slices.Contains(byTheClient, command) {
			continue
		}
		r.Must("ACL", "SETUSER", "overdue", "-"+command)
		check(command)
		r.Must("ACL", "SETUSER", "overdue", "+"+command)
	}
	if left := r.Must("KEYS", "*"); left != "*0\r\n" {
		t.Errorf("a checkup leaves %q", left)
	}
}

func TestACheckupSaysWhatIsRefused(t *testing.T) {
	r := redistest.Start(t)
	r.Must(aclRule(t)...)
	r.Must("CONFIG", "SET", "maxmemory", "100mb")
	r.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	s := open(t, "redis://overdue:secret@"+r.Addr)
	c, err := s.Checkup(t.Context())
	must(t, err)
	if len(c.Servers) != 1 || !strings.Contains(c.Servers[0].Version, ".") || c.Servers[0].Replica || c.Servers[0].Memory != 100<<20 ||
		c.Servers[0].UsedBytes == 0 || c.Servers[0].Eviction != "allkeys-lru" {
		t.Errorf("servers %+v", c.Servers)
	}
	for want, act := range map[string][]string{
		"keys":     {"ACL", "SETUSER", "overdue", "resetkeys", "~other:*"},
		"READONLY": {"REPLICAOF", "127.0.0.1", "1"},
	} {
		r.Must(act...)
		c, err := s.Checkup(t.Context())
		must(t, err)
		if want == "keys" != c.KeyDenied || want != "keys" && (!strings.HasPrefix(c.Refusal, want) || !c.Servers[0].Replica) {
			t.Errorf("%s: %+v", want, c)
		}
		r.Must("ACL", "SETUSER", "overdue", "resetkeys", "~overdue:*")
		r.Must("REPLICAOF", "NO", "ONE")
	}
	for address, want := range map[string]string{
		"redis://overdue:sesame@" + r.Addr:           "WRONGPASS",
		"redis://127.0.0.1:" + redistest.FreePort(t): "refused",
		"redis://overdue:secret@" + r.Addr + "/99":   "DB index",
	} {
		_, err := open(t, address).Checkup(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v, want %s", want, err, want)
		}
	}
}
