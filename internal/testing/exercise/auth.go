// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

var sendKey = broker.AuthorizationRule{KeyName: "sender", PrimaryKey: "c2VuZCBvbmx5IHByaW1hcnkga2V5IG9mIGEgdGVzdC4=", SecondaryKey: "c2VuZCBvbmx5LCBzZWNvbmRhcnkga2V5IG9mIHRlc3Q=", Send: true}
var listenKey = broker.AuthorizationRule{KeyName: "listener", PrimaryKey: "bGlzdGVuIG9ubHkgcHJpbWFyeSBrZXkgb2YgdGVzdHM=", SecondaryKey: "bGlzdGVuIG9ubHksIHNlY29uZGFyeSBvZiB0ZXN0cy4=", Listen: true}

// withKeys is a queue that has a key for each direction.
var withKeys = broker.QueueConfig{AuthorizationRules: []broker.AuthorizationRule{sendKey, listenKey}}

var authSpecs = []spec{
	{"a key with Send sends and does not receive", withKeys, func(s *scene) {
		c := s.keys.clientWith(sendKey.KeyName, sendKey.PrimaryKey)
		s.must(s.keys.sendBy(c))
		s.keys.wantRefusal(s.keys.receiveBy(c), "Unauthorized access. 'Listen' claim(s) are required to perform this operation")
	}},
	{"a key with Listen receives and does not send", withKeys, func(s *scene) {
		s.text("x")
		c := s.keys.clientWith(listenKey.KeyName, listenKey.PrimaryKey)
		s.must(s.keys.receiveBy(c))
		s.keys.wantRefusal(s.keys.sendBy(c), "Unauthorized access. 'Send' claim(s) are required to perform this operation")
	}},
	{"the secondary key has the same rights", withKeys, func(s *scene) {
		s.must(s.keys.sendBy(s.keys.clientWith(sendKey.KeyName, sendKey.SecondaryKey)))
	}},
	{"the key of an entity is for that entity", withKeys, func(s *scene) {
		c := s.keys.clientWith(sendKey.KeyName, sendKey.PrimaryKey)
		sender, err := c.NewSender(s.target.CreateQueue(s.T, broker.QueueConfig{LockDuration: s.target.LockDuration}), nil)
		s.must(err)
		s.keys.wantRefusal(sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), "InvalidSignature: The token has an invalid signature.")
	}},
	{"a wrong key is refused", broker.QueueConfig{}, func(s *scene) {
		name, key := s.keys.key()
		s.keys.wantRefusal(s.keys.sendBy(s.keys.clientWith(name, key+"x")), "InvalidSignature: The token has an invalid signature.")
		s.keys.wantRefusal(s.keys.sendBy(s.keys.clientWith("nobody", key)), "InvalidSignature: The token has an invalid signature.")
	}},
	{"a token is good until it expires", broker.QueueConfig{}, func(s *scene) {
		s.must(s.keys.sendBy(s.keys.clientWithToken("", time.Now().Add(time.Hour))))
		c := s.keys.clientWithToken("", time.Now().Add(-10*time.Minute))
		const want = "rpc: failed, status code 401 and description: ExpiredToken: The token is expired. Expiration time:"
		s.keys.wantRefusal(s.keys.sendBy(c), want)
		s.keys.wantRefusal(s.keys.receiveBy(c), want)
	}},
	{"a token is good for what lies below its resource", broker.QueueConfig{}, func(s *scene) {
		s.must(s.keys.sendBy(s.keys.clientWithToken("/"+s.queue, time.Now().Add(time.Hour))))
		s.keys.wantRefusal(s.keys.sendBy(s.keys.clientWithToken("/"+s.queue+"2", time.Now().Add(time.Hour))),
			"InvalidAudience: The authorization header contains a token with a wrong audience.")
	}},
	{"requests over HTTP ask for the same claims", withKeys, func(s *scene) {
		if !s.target.Secured {
			s.Skip("the namespace asks for no tokens")
		}
		as := func(k broker.AuthorizationRule, life time.Duration) []string {
			return []string{"Authorization", sas.Make(k.KeyName, k.PrimaryKey, s.keys.field("Endpoint")+"/"+s.queue, time.Now().Add(life))}
		}
		head := s.rest.messages() + "/head?timeout=1"
		s.rest.wantAnswer("send", s.rest.call(http.MethodPost, s.rest.messages(), "x", as(sendKey, time.Hour)...), http.StatusCreated)
		s.rest.wantAnswer("send with Listen", s.rest.call(http.MethodPost, s.rest.messages(), "x", as(listenKey, time.Hour)...), http.StatusUnauthorized)
		s.rest.wantAnswer("receive with Send", s.rest.call(http.MethodDelete, head, "", as(sendKey, time.Hour)...), http.StatusUnauthorized)
		s.rest.wantAnswer("receive with an expired token", s.rest.call(http.MethodDelete, head, "", as(listenKey, -time.Hour)...), http.StatusUnauthorized)
		s.rest.wantAnswer("receive with another's token", s.rest.call(http.MethodDelete, head, "", "Authorization", "Bearer eyJh.eyJh.c2ln"), http.StatusUnauthorized)
		s.rest.wantAnswer("receive", s.rest.call(http.MethodDelete, head, "", as(listenKey, time.Hour)...), http.StatusOK)
	}},
	{"a client without rights does not learn whether an entity exists", broker.QueueConfig{}, func(s *scene) {
		c := s.keys.clientWithToken("/"+s.queue, time.Now().Add(time.Hour))
		sender, err := c.NewSender("there-is-none", nil)
		s.must(err)
		s.keys.wantRefusal(sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), "InvalidAudience:")
	}},
}

// key returns the name and the key of the target's connection string.
func (s keyring) key() (name, key string) {
	s.Helper()
	return s.field("SharedAccessKeyName"), s.field("SharedAccessKey")
}

func (s keyring) field(name string) string {
	s.Helper()
	for part := range strings.SplitSeq(s.target.ConnectionString, ";") {
		if k, v, _ := strings.Cut(part, "="); strings.EqualFold(k, name) {
			return v
		}
	}
	s.Fatalf("the connection string has no %s", name)
	return ""
}

// clientWith returns a client with another key, and skips the case where none is
// asked for.
func (s keyring) clientWith(name, key string) *azservicebus.Client {
	s.Helper()
	return s.clientBy("SharedAccessKeyName=" + name + ";SharedAccessKey=" + key)
}

// clientWithToken returns a client with a token that the test has made with the
// target's key, for a path of the namespace.
func (s keyring) clientWithToken(path string, expires time.Time) *azservicebus.Client {
	s.Helper()
	name, key := s.key()
	resource := s.field("Endpoint") + path
	return s.clientBy("SharedAccessSignature=" + sas.Make(name, key, resource, expires))
}

func (s keyring) clientBy(credentials string) *azservicebus.Client {
	s.Helper()
	if !s.target.Secured {
		s.Skip("the namespace asks for no tokens")
	}
	cs := "Endpoint=" + s.field("Endpoint") + ";" + credentials
	if strings.Contains(strings.ToLower(s.target.ConnectionString), "usedevelopmentemulator=true") {
		cs += ";UseDevelopmentEmulator=true"
	}
	return brokertest.NewClient(s, cs, s.target.ClientOptions)
}

// sendBy sends a message to the queue.
func (s keyring) sendBy(c *azservicebus.Client) error {
	s.Helper()
	sender, err := c.NewSender(s.queue, nil)
	s.must(err)
	return sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("x")}, nil)
}

// receiveBy receives a message from the queue.
func (s keyring) receiveBy(c *azservicebus.Client) error {
	s.Helper()
	r := s.receiverOf(c, nil)
	_, err := r.ReceiveMessages(s.ctx, 1, nil)
	return err
}

// wantRefusal checks that err is what the SDK makes of a missing right.
func (s keyring) wantRefusal(err error, text string) {
	s.Helper()
	var refused *azservicebus.Error
	if !errors.As(err, &refused) || refused.Code != azservicebus.CodeUnauthorizedAccess || !strings.Contains(err.Error(), text) {
		s.Errorf("got %v, want unauthorized access and %q", err, text)
	}
}
