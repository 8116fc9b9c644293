// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"overdue/internal/testing/redistest"
)

// everyUse asks for all that is ever asked.
func everyUse(ctx context.Context, s *Store) error {
	notified, v := s.Notified(), s.View()
	_, _, beginErr := notified.Begin(ctx, "event")
	_, readErr := v.Read(ctx)
	pages := s.Groups()
	_, _, _, claimErr := pages.Claim(ctx, "group")
	past := s.History()
	_, missedErr := past.Latest(ctx, MissedRecord, MostMissed)
	for _, err := range []error{
		missedErr, past.Add(ctx, UnknownRecord, []string{"one"}, time.Minute),
		s.Ping(ctx),
		beginErr, notified.End(ctx, "event", false), notified.End(ctx, "event", true),
		v.Report(ctx, Process{}, missedOf("orders", 1)), readErr, v.Leave(ctx),
		pages.Add(ctx, "group", "part", []byte("x")), claimErr, pages.Release(ctx, "group", "note"),
	} {
		if err != nil {
			return err
		}
	}
	return everyUseOfCompanions(ctx, s.Companions())
}

// everyUseOfCompanions takes as many as there are in all places of a cluster, most probably,
// through all that may become of them.
func everyUseOfCompanions(ctx context.Context, c *Companions) error {
	const n = 60
	turn := rand.Text() + "-" // another may have failed halfway
	items := append(numberedItems(n, noon), Item{ID: "note", Due: noon, Note: true})
	for i := range items {
		items[i].ID = turn + items[i].ID
	}
	if err := c.Put(ctx, items); err != nil {
		return err
	}
	withdrawn, err := c.Withdraw(ctx, []string{turn + "i-0", turn + "i-1", turn + "i-2"})
	if err != nil {
		return err
	}
	seen := map[string]Lease{}
	for end := time.Now().Add(2 * time.Minute); len(seen) < len(items)-len(withdrawn) && time.Now().Before(end); {
		c.wakeAll()
		leases, _, err := c.Claim(ctx, noon, 2*n)
		if err != nil {
			return err
		}
		for _, l := range leases {
			if strings.HasPrefix(l.ID, turn) {
				seen[l.ID] = l
			}
		}
	}
	if len(withdrawn) != 3 || len(seen) != n+1-3 {
		return fmt.Errorf("%d were withdrawn and %d claimed, want 3 and the other %d", len(withdrawn), len(seen), n+1-3)
	}
	if err := c.Renew(ctx); err != nil {
		return err
	}
	i := 0
	for _, l := range seen {
		var err error
		switch i++; i % 3 {
		case 0:
			err = c.Done(ctx, l)
		case 1:
			if err = c.GiveBack(ctx, l); err == nil {
				err = c.Done(ctx, l)
			}
		case 2:
			err = c.Bury(ctx, l, "Reason", "why")
		}
		if err != nil {
			return err
		}
	}
	kept := false
	err = c.Notes(ctx, turn, func(Item) { kept = true })
	if err == nil && kept {
		err = errors.New("what is done is kept")
	}
	_, inspectErr := c.Inspect(ctx)
	counts, countErr := c.Counts(ctx)
	if counts.Dead == 0 {
		err = errors.Join(err, fmt.Errorf("counts %+v, want some that are dead", counts))
	}
	return errors.Join(err, inspectErr, countErr, c.Walk(ctx, func(Item) bool { return true }), c.Dead(ctx, func(Dead) bool { return true }))
}

// listens has c listen until the test ends, and returns when it does.
func listens(t *testing.T, c *Companions) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Listen(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	eventually(t, func() error {
		if !c.listening.Load() {
			return errors.New("it does not listen")
		}
		return nil
	})
}

// eventually retries what a server that is being made ready refuses.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	err := f()
	for deadline := time.Now().Add(2 * time.Minute); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The user that docs/operate/redis.md makes may do what Overdue does, over TLS, and nothing else.
func TestTheRightsOnThePageAreEnough(t *testing.T) {
	roots, cert, key := certificate(t)
	port := redistest.FreePort(t)
	r := redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	for _, rule := range aclRules(t) {
		r.Must(rule...)
	}
	connect := func(address string, roots *x509.CertPool) *Store {
		t.Helper()
		a, err := ParseAddress(address)
		must(t, err)
		s, err := Open(Config{Address: a, Fleet: []string{t.Name()}, Roots: roots, Slack: slack})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() }) // there is nothing to lose
		return s
	}
	ours := connect("rediss://overdue:secret@127.0.0.1:"+port, roots)
	must(t, everyUse(t.Context(), ours))
	c := ours.Companions()
	listens(t, c)
	for len(c.Woken()) > 0 {
		<-c.Woken()
	}
	must(t, connect("rediss://overdue:secret@127.0.0.1:"+port, roots).Companions().Put(t.Context(), numberedItems(1, noon)))
	<-c.Woken()
	for name, s := range map[string]*Store{
		"another authority": connect("rediss://overdue:secret@127.0.0.1:"+port, nil),
		"another password":  connect("rediss://overdue:sesame@127.0.0.1:"+port, roots),
	} {
		if err := everyUse(t.Context(), s); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v, want an error without secrets", name, err)
		}
	}
}

// certificate is one for 127.0.0.1 that vouches for itself.
func certificate(t *testing.T) (roots *x509.CertPool, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	roots = x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	roots.AddCert(cert)
	return roots, write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

// A cluster of three takes everything: what goes together is on one server, and the rest is spread.
func TestCluster(t *testing.T) {
	var hosts []string
	for i := range 3 {
		r := redistest.Start(t, "--cluster-enabled", "yes")
		from, to := i*slots/3, (i+1)*slots/3-1
		r.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
		r.Must("CONFIG", "SET", "cluster-require-full-coverage", "no")
		r.Must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			host, port, err := net.SplitHostPort(hosts[0])
			must(t, err)
			r.Must("CLUSTER", "MEET", host, port)
		}
		hosts = append(hosts, r.Addr)
	}
	s := open(t, "redis+cluster://"+strings.Join(hosts, ","))
	eventually(t, func() error { return everyUse(t.Context(), s) })
	listens(t, s.Companions())
}

// A replica takes over, and is used by way of Sentinel.
func TestSentinel(t *testing.T) {
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr)
	must(t, err)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	sentinel := redistest.Sentinel(t, master)
	s := open(t, "redis+sentinel://"+sentinel.Addr+"/mymaster")
	eventually(t, func() error { return everyUse(t.Context(), s) })
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(sentinel.Must("SENTINEL", "REPLICAS", "mymaster"), strings.TrimPrefix(replica.Addr, host+":")); {
		if time.Now().After(deadline) {
			t.Fatal("Sentinel finds no replica")
		}
		time.Sleep(20 * time.Millisecond)
	}
	c := s.Companions()
	must(t, c.Put(t.Context(), []Item{item("kept", noon)}))
	wantIDs(t, "of the first master", claimed(t, c, noon, 1), "kept")
	replicated := func() error {
		if answer := master.Must("WAIT", "1", "1000"); answer != ":1\r\n" {
			return errors.New("the replica does not follow")
		}
		return nil
	}
	must(t, c.Put(t.Context(), []Item{item("kept, too", noon)}))
	eventually(t, replicated)
	master.Kill()
	eventually(t, func() error { return c.Renew(t.Context()) }) // of what the first one leased
	wantIDs(t, "of the next master", claimed(t, c, noon, 1), "kept, too")
	eventually(t, func() error { return everyUse(t.Context(), s) })
	if role := replica.Must("ROLE"); !strings.Contains(role, "master") {
		t.Errorf("the replica says %q, want it to be the master", role)
	}
}

const slots = 16384

// slotOf is how a cluster finds the server of a key: CRC16/XMODEM of its tag, if it has one.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

func TestKeysOfAScriptShareASlot(t *testing.T) {
	r := redistest.Start(t, "--cluster-enabled", "yes")
	s := open(t, "redis+cluster://"+r.Addr)
	for _, k := range s.Companions().places {
		for _, key := range []string{k.leased, k.holders, k.records, k.dead} {
			if slotOf(key) != slotOf(k.due) {
				t.Errorf("%s and %s are in slots %d and %d", key, k.due, slotOf(key), slotOf(k.due))
			}
		}
	}
	processes, gone, today, ever := s.View().keys(noon)
	claim, parts, note := s.groupKeys("group {x}")
	for _, together := range [][]string{{processes, gone}, {today, ever}, {claim, parts, note}} {
		for _, key := range together {
			if slotOf(key) != slotOf(together[0]) {
				t.Errorf("%s and %s are in slots %d and %d", key, together[0], slotOf(key), slotOf(together[0]))
			}
		}
	}
	for _, key := range []string{processes, gone, today, ever, claim, parts, note, "x{a}y", "{}x", "x", s.key("i", "inbox")} {
		if got, want := r.Must("CLUSTER", "KEYSLOT", key), ":"+strconv.Itoa(slotOf(key))+"\r\n"; got != want {
			t.Errorf("the slot of %q is %q, computed as %q", key, got, want)
		}
	}
}
