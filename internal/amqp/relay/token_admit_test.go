// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	grammar "overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

// grantScene returns grants, and their calls of lapsed.
func grantScene(t *testing.T) (*grants, chan bool) {
	lapsed := make(chan bool, 100)
	g := newGrants(Keys(sas.Key{Name: "app", Value: "first", Rights: sas.All}), nil, func(never bool) { lapsed <- never })
	g.wait()
	t.Cleanup(g.close)
	return g, lapsed
}

func TestALinkNeedsATokenForItsEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := grantScene(t)
		res := g.judge(&tokenRequest{operation: "put-token", audience: "amqp://h/orders",
			token: sas.Make("app", "first", "amqp://h/orders", time.Now().Add(time.Hour))})
		if res.status != 202 || res.description != "Accepted" {
			t.Fatalf("put-token = %+v, want 202", res)
		}
		for address, want := range map[string]bool{
			"orders": true, "ORDERS": true, "/orders": true, "orders/$management": true, "orders/$DeadLetterQueue": true,
			"sb://else/orders": true, "orders2": false, "order": false, "events/orders": false, "orders/..x": true,
		} {
			path, err := grammar.Plain(address)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.refuse(path, sas.Send); (err == nil) != want {
				t.Errorf("a link to %q = %v, want let in: %v", address, err, want)
			} else if err != nil && err.Condition != amqp.ErrCondUnauthorizedAccess {
				t.Errorf("a link to %q = %v, want %s", address, err, amqp.ErrCondUnauthorizedAccess)
			}
		}
	})
}

func TestSASLPlainOpensAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, lapsed := grantScene(t)
		if err := g.password("app", "wrong"); err == nil || g.refuse("orders", sas.Send) == nil {
			t.Errorf("with a wrong key = %v, want it to be refused", err)
		}
		if err := g.password("app", "first"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if err := g.refuse("orders/$management", sas.Send); err != nil {
			t.Errorf("a link after two days = %v", err)
		}
		if len(lapsed) != 0 {
			t.Error("something lapsed, want nothing to")
		}
	})
}

func TestAClientThatProvesNothingIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, lapsed := grantScene(t)
		time.Sleep(admissionTimeout - 1)
		synctest.Wait()
		if len(lapsed) != 0 {
			t.Errorf("given up before %v", admissionTimeout)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(lapsed) != 1 || !<-lapsed {
			t.Errorf("%d calls after %v, want one, for a client that has never proven anything", len(lapsed), admissionTimeout)
		}
	})
}

func TestAGrantHoldsAsLongAsItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, lapsed := grantScene(t)
		put := func(path string, life time.Duration) {
			t.Helper()
			if res := g.judge(&tokenRequest{operation: "put-token", audience: "sb://h/" + path,
				token: sas.Make("app", "first", "sb://h/"+path, time.Now().Add(life))}); res.status != 202 {
				t.Fatalf("put-token = %+v, want 202", res)
			}
		}
		put("late", 3*time.Hour)
		put("orders", time.Hour)
		time.Sleep(45 * time.Minute)
		put("orders", time.Hour) // renewed
		time.Sleep(45 * time.Minute)
		synctest.Wait()
		if err := g.refuse("orders", sas.Send); err != nil {
			t.Errorf("with a renewed token = %v", err)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if err := g.refuse("orders", sas.Send); err == nil {
			t.Error("a link is let in with a token that has expired")
		}
		if err := g.refuse("late", sas.Send); err != nil {
			t.Errorf("the token that holds for longer = %v", err)
		}
		if len(lapsed) == 0 || <-lapsed {
			t.Error("lapsed was not called for an expired token, or was called with never")
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if err := g.refuse("late", sas.Send); err == nil {
			t.Error("a link is let in with the second token expired, too")
		}
	})
}

func TestWithoutAJudgeEverybodyIsLetIn(t *testing.T) {
	g := newGrants(nil, nil, nil)
	if res := g.judge(&tokenRequest{operation: "put-token", audience: "sb://h/orders", token: "anything"}); res.status != 202 {
		t.Errorf("put-token = %+v, want 202", res)
	}
	if err := g.refuse("orders", sas.Send); err != nil {
		t.Errorf("a link = %v", err)
	}
	if err := g.password("who", "knows"); err != nil {
		t.Errorf("PLAIN = %v", err)
	}
	g.close()
}

func TestGrantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrants(func(c Credentials) (sas.Grant, error) {
			return sas.Grant{Path: strings.TrimPrefix(c.Audience, "sb://h/"), Rights: sas.All}, nil
		}, nil, func(bool) {})
		defer g.close()
		for i := range maxGrants {
			g.put(sas.Grant{Path: strings.Repeat("x", i%1000) + string(rune('a'+i/1000))})
		}
		res := g.judge(&tokenRequest{operation: "put-token", audience: "sb://h/one-more", token: "t"})
		if res.status != 403 || res.condition != amqp.ErrCondResourceLimitExceeded {
			t.Errorf("one audience too many = %+v, want 403 %s", res, amqp.ErrCondResourceLimitExceeded)
		}
	})
}
