// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/sas"
)

// The keys of the matrix: what each may, and where.
var matrixKeys = []struct {
	name                 string
	send, listen, manage bool
	elsewhere            bool // it is good for another entity
}{
	{name: "none"}, {name: "listener", listen: true}, {name: "sender", send: true},
	{name: "managementClient", send: true, listen: true, manage: true}, {name: "stranger", send: true, listen: true, elsewhere: true},
}

func matrixScene(t *testing.T) *scene {
	var keys []sas.Key
	for _, k := range matrixKeys[1:] {
		key := sas.Key{Name: k.name, Value: "secret-of-" + k.name}
		for right, has := range map[sas.Rights]bool{sas.Send: k.send, sas.Listen: k.listen, sas.Manage: k.manage} {
			if has {
				key.Rights |= right
			}
		}
		if k.elsewhere {
			key.Entity = "other"
		}
		keys = append(keys, key)
	}
	return setup(t, func(cfg *Config) {
		own(cfg)
		cfg.Admit = Keys(keys...)
	}, secured("orders", "other"))
}

// as is a peer that has come in with a key, or without one.
func (s *scene) as(key string) *peer {
	s.Helper()
	if key == "none" {
		return s.unauthenticated()
	}
	return s.peerAt(func(ctx context.Context) (net.Conn, error) {
		nc, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		init := &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + key + "\x00secret-of-" + key)}
		if code := speaker(s.T, nc).login(init); code != amqp.SASLOK {
			return nil, fmt.Errorf("outcome = %d, want ok", code)
		}
		return nc, nil
	})
}

// The termini that either end of a link may have, by address; "" = none that has one.
var matrixEnds = []struct{ kind, address string }{
	{"null", ""}, {"empty", ""}, {"dynamic", ""}, {"number", ""}, {"coordinator", ""},
	{"entity", "orders"}, {"dead letters", "orders/$DeadLetterQueue"}, {"management", "orders/$management"},
	{"cbs", "$cbs"}, {"unknown", "orders/$nothing"},
}

// How an address may be written, and whether it then has one reading.
var matrixSpellings = []struct {
	name  string
	of    func(string) string
	plain bool
}{
	{"bare", func(a string) string { return a }, true},
	{"slash in front", func(a string) string { return "/" + a }, true},
	{"slash behind", func(a string) string { return a + "/" }, true},
	{"URI", func(a string) string { return "amqps://contoso.servicebus.windows.net:5671/" + a }, true},
	{"capitals", strings.ToUpper, true},
	{"two slashes", func(a string) string { return a + "//" }, false},
	{"two slashes within", func(a string) string { return strings.Replace(a+"/", "/", "//", 1) }, false},
	{"dots", func(a string) string { return "x/../" + a }, false},
	{"percent sign", func(a string) string { return strings.Replace(a, "s", "%73", 1) }, false},
	{"backslash", func(a string) string { return "\\" + a }, false},
	{"query", func(a string) string { return a + "?x" }, false},
}

// opens is the matrix, as documents of Service Bus have it: which link opens for whom. It knows
// nothing of the table.
func opens(receiver bool, source, target string, plain bool, key int) bool {
	k := matrixKeys[key]
	if target == "coordinator" {
		return !receiver // any sender may attach; the operations need rights on other links
	}
	at := target
	if receiver {
		at = source
	}
	switch {
	case !plain:
		return false
	case at == "cbs":
		return true
	case k.elsewhere:
		return false
	case at == "management":
		return k.send || k.listen || k.manage
	case at == "entity" && receiver, at == "dead letters" && receiver:
		return k.listen
	case at == "entity":
		return k.send
	}
	return false
}

func TestEveryLinkOpensForWhomTheMatrixSays(t *testing.T) {
	tried, opened := 0, 0
	for key, k := range matrixKeys {
		synctest.Test(t, func(t *testing.T) {
			s := matrixScene(t)
			p := s.as(k.name)
			for _, source := range matrixEnds {
				if source.kind == "coordinator" {
					continue // which no source can be
				}
				for _, target := range matrixEnds {
					for _, receiver := range []bool{false, true} {
						for _, spelling := range matrixSpellings {
							decisive := target.address
							if receiver {
								decisive = source.address
							}
							if decisive == "" && spelling.name != "bare" {
								continue // there is nothing to write in another way
							}
							if spelling.of(decisive) == decisive && spelling.name != "bare" {
								continue
							}
							a := &amqp.Attach{Name: fmt.Sprint("link-", tried), Role: amqp.RoleSender}
							if receiver {
								a.Role = amqp.RoleReceiver
							}
							a.Source, a.Target, a.Coordinator = matrixAttach(source.kind, target.kind, spelling.of(source.address), spelling.of(target.address))
							tried++
							if k.name == "none" && tried%20 == 0 { // the budget of a connection without a token is small
								p.nc.Close()
								p = s.as(k.name)
							}
							want := opens(receiver, source.kind, target.kind, spelling.plain, key)
							if got := p.opened(a); got != want {
								t.Errorf("%s: receiver %v, source %s, target %s, %s: opened %v, want %v", k.name, receiver, source.kind, target.kind, spelling.name, got, want)
							} else if got {
								opened++
							}
						}
					}
				}
			}
		})
	}
	t.Logf("%d links tried, %d opened", tried, opened)
	if tried < 5000 || opened < 500 {
		t.Errorf("%d links tried and %d opened, want the whole matrix", tried, opened)
	}
}

func matrixAttach(sourceKind, targetKind, source, target string) (s *amqp.Source, t *amqp.Target, c *amqp.Coordinator) {
	number := amqp.AppendUint(nil, 7)
	switch sourceKind {
	case "null":
	case "empty":
		s = &amqp.Source{HasAddress: true}
	case "dynamic":
		s = &amqp.Source{Dynamic: true}
	case "number":
		s = &amqp.Source{OtherAddress: number}
	default:
		s = &amqp.Source{Address: source, HasAddress: true}
	}
	switch targetKind {
	case "null":
	case "empty":
		t = &amqp.Target{HasAddress: true}
	case "dynamic":
		t = &amqp.Target{Dynamic: true}
	case "number":
		t = &amqp.Target{OtherAddress: number}
	case "coordinator":
		c = &amqp.Coordinator{}
	default:
		t = &amqp.Target{Address: target, HasAddress: true}
	}
	return s, t, c
}

// opened attaches a link, closes it again, and reports whether it was there.
func (p *peer) opened(a *amqp.Attach) bool {
	p.s.Helper()
	said := func() string {
		time.Sleep(time.Millisecond)
		synctest.Wait()
		var all []string
		for {
			select {
			case got, ok := <-p.got:
				if !ok {
					p.s.Fatalf("the connection ended after %q", all)
				}
				all = append(all, got)
			default:
				return strings.Join(all, "\n")
			}
		}
	}
	p.write(0, a, nil)
	got := said()
	if !strings.Contains(got, "attach") {
		p.s.Fatalf("an attach is answered with %q", got)
	}
	open := !strings.Contains(got, "detach")
	p.write(0, &amqp.Detach{Handle: 0, Closed: true}, nil)
	said()
	return open
}

// matrixOperations are the operations of a management node by the right that their documents name.
var matrixOperations = map[string]string{
	"schedule-message": "send", "cancel-scheduled-message": "send",
	"peek-message": "listen", "renew-lock": "listen", "update-disposition": "listen", "receive-by-sequence-number": "listen", "batch-delete-messages": "listen",
	"renew-session-lock": "listen", "get-session-state": "listen", "set-session-state": "listen", "get-message-sessions": "listen",
	"add-rule": "listen or manage", "remove-rule": "listen or manage", "enumerate-rules": "listen or manage",
	"purge-everything": "", "": "",
}

// Every operation on every node needs its right; one that is not known, and one stated twice, is
// done for nobody.
func TestEveryRequestIsDoneForWhomTheMatrixSays(t *testing.T) {
	tried := 0
	for _, k := range matrixKeys {
		if k.name == "none" || k.elsewhere {
			continue // they have no links to such nodes, says the matrix of links
		}
		synctest.Test(t, func(t *testing.T) {
			s := matrixScene(t)
			session, err := s.connect(goamqp.SASLTypePlain(k.name, "secret-of-"+k.name)).NewSession(t.Context(), nil)
			s.must(err)
			for _, node := range []string{"orders/$management", "/Orders/$Management/", "sb://h/orders/$management", "orders/$DeadLetterQueue/$management"} {
				sender, err := session.NewSender(t.Context(), node, nil)
				s.must(err)
				replyTo := "reply-" + node
				receiver, err := session.NewReceiver(t.Context(), node, &goamqp.ReceiverOptions{TargetAddress: replyTo, Credit: 1000})
				s.must(err)
				for operation, right := range matrixOperations {
					for _, spelling := range []string{"plain", "in capitals", "beside another"} {
						tried++
						name := "com.microsoft:" + operation
						if spelling == "in capitals" {
							name = strings.ToUpper(name)
						}
						properties := map[string]any{"operation": name}
						if operation == "" {
							properties = map[string]any{}
						}
						if spelling == "beside another" {
							properties["Operation"] = "com.microsoft:peek-message"
						}
						s.must(sender.Send(t.Context(), &goamqp.Message{
							Value: map[string]any{}, ApplicationProperties: properties,
							Properties: &goamqp.MessageProperties{MessageID: fmt.Sprint(tried), ReplyTo: &replyTo},
						}, nil))
						m, err := receiver.Receive(t.Context(), nil)
						s.must(err)
						status, _ := m.ApplicationProperties["status-code"].(int32)
						if status == 0 {
							status, _ = m.ApplicationProperties["statusCode"].(int32)
						}
						may := strings.Contains(right, "send") && k.send || strings.Contains(right, "listen") && k.listen || strings.Contains(right, "manage") && k.manage
						var want string
						switch known := right != "" && (spelling != "in capitals"); {
						case operation == "":
							want = "400"
						case !known:
							want = "501"
						case right == "send" && strings.Contains(node, "DeadLetter"):
							want = "400" // nothing is sent there
						case !may:
							want = "401"
						default:
							want = "not 401, not 501"
						}
						got := fmt.Sprint(status)
						if want == "not 401, not 501" && status != 401 && status != 501 {
							got = want
						}
						if got != want {
							t.Errorf("%s: %q (%s) at %s = %d, want %s: %v", k.name, operation, spelling, node, status, want, m.ApplicationProperties)
						}
					}
				}
			}
		})
	}
	t.Logf("%d requests tried", tried)
	if tried < 500 {
		t.Errorf("%d requests tried, want the whole matrix", tried)
	}
}
