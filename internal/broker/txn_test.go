// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
)

// exercise.Run has the transactions as a client sees them.

// txnScene is the transactions of a connection, and a queue with a message that
// is locked.
type txnScene struct {
	*testing.T
	*transactions
	entity *Entity
	token  queue.LockToken
}

func newTxnScene(t *testing.T) *txnScene {
	t.Helper()
	b, err := New(Config{Queues: []QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	e := b.Default().entities.find("q")
	if _, err := e.queue.Send(queue.Message{}); err != nil {
		t.Fatal(err)
	}
	c := e.queue.NewConsumer(queue.PeekLock)
	c.AddCredit(1)
	ds, _, _ := c.Take(nil)
	return &txnScene{t, &transactions{now: b.Now}, e, ds[0].LockToken}
}

func (s *txnScene) begin() []byte {
	s.Helper()
	id, err := s.declare(nil)
	if err != nil {
		s.Fatalf("declare: %v", err)
	}
	return id
}

func (s *txnScene) want(what string, err *amqp.Error, want amqp.Symbol) {
	s.Helper()
	if want == "" && err != nil || want != "" && (err == nil || err.Condition != want) {
		s.Errorf("%s = %v, want %q", what, err, want)
	}
}

func (s *txnScene) complete(id []byte) *amqp.Error {
	return s.settle(id, s.entity, s.entity.queue, queue.Settlement{Outcome: queue.Complete}, []queue.LockToken{s.token}, nil, nil)
}

func TestATransactionThatTimesOutLetsGoAtOnceAndIsForgottenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTxnScene(t)
		id := s.begin()
		if _, err := s.entity.queue.RenewLocks([]queue.LockToken{s.token}); err != nil {
			t.Fatal(err)
		}
		s.want("settle", s.complete(id), "")
		s.want("send", s.send(id, s.entity, s.entity, []queue.Message{{}}), "")
		time.Sleep(transactionTimeout - time.Second)
		if got := seen(s.entity.queue.Peek(nil, 0, 9)); len(got) != 1 || got[0].DeliveryCount != 0 {
			t.Errorf("before the timeout: %+v, want one message and its lock kept", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		// Nobody has named the transaction since: the lock, whose time is over, has lapsed all the same.
		if got := seen(s.entity.queue.Peek(nil, 0, 9)); len(got) != 1 || got[0].DeliveryCount != 1 {
			t.Errorf("after the timeout: %+v, want one message and its lock lapsed", got)
		}
		s.want("send after the timeout", s.send(id, s.entity, s.entity, []queue.Message{{}}), amqp.ErrCondTransactionTimeout)
		time.Sleep(transactionTimeout)
		synctest.Wait()
		if n := len(s.open); n != 0 {
			t.Errorf("%d transactions are remembered, want none", n)
		}
		s.want("discharge", s.discharge(id, false), amqp.ErrCondTransactionUnknownID)
	})
}

func TestTransactionsOfAConnectionAreBounded(t *testing.T) {
	s := newTxnScene(t)
	for range maxTransactions {
		s.begin()
	}
	_, err := s.declare(nil)
	s.want("one declare more", err, amqp.ErrCondResourceLimitExceeded)
	s.abandon(nil)
	s.begin()
}

func TestADoomedTransactionIsRolledBackAtOnce(t *testing.T) {
	s := newTxnScene(t)
	id := s.begin()
	s.want("settle", s.complete(id), "")
	s.doom(id, amqp.Errorf(amqp.ErrCondNotAllowed, "because"))
	if err := s.entity.queue.Complete(s.token); err != nil {
		t.Errorf("Complete by the token = %v, want the lock back", err)
	}
	s.want("send", s.send(id, s.entity, s.entity, []queue.Message{{}}), amqp.ErrCondTransactionRollback)
	s.want("discharge", s.discharge(id, false), amqp.ErrCondTransactionRollback)
	s.want("discharge again", s.discharge(id, false), amqp.ErrCondTransactionUnknownID)
}

func TestADisabledEntityRollsATransactionBack(t *testing.T) {
	s := newTxnScene(t)
	id := s.begin()
	s.want("settle", s.complete(id), "")
	s.want("send", s.send(id, s.entity, s.entity, []queue.Message{{}}), "")
	if _, err := s.entity.ns.UpdateQueue(QueueConfig{Name: "q", Status: SendDisabled}); err != nil {
		t.Fatal(err)
	}
	s.want("discharge", s.discharge(id, false), amqp.ErrCondTransactionRollback)
	if n := s.entity.queue.Counts().Active; n != 1 {
		t.Errorf("%d messages, want the one that was there", n)
	}
}

// coordinate gives a coordinator the body of a message.
func (s *txnScene) coordinate(body []byte, settled bool) (amqp.DeliveryState, *amqp.Error) {
	c := &coordinator{txns: s.transactions}
	return c.perform(&server.Delivery{Payload: body, Settled: settled})
}

func TestTheCoordinatorRefusesWhatItDoesNotKnow(t *testing.T) {
	s := newTxnScene(t)
	global := amqp.AppendBinary(nil, []byte("x"))
	for name, tc := range map[string]struct {
		body []byte
		want amqp.Symbol
	}{
		"nothing":       {nil, amqp.ErrCondNotAllowed},
		"data":          {amqp.AppendData(nil, []byte("x")), amqp.ErrCondNotAllowed},
		"a string":      {amqp.AppendValueSection(nil, amqp.AppendString(nil, "x")), amqp.ErrCondNotAllowed},
		"another type":  {amqp.AppendValueSection(nil, (&amqp.Declared{TxnID: []byte("x")}).Append(nil)), amqp.ErrCondNotAllowed},
		"distributed":   {amqp.AppendValueSection(nil, (&amqp.Declare{GlobalID: global}).Append(nil)), amqp.ErrCondNotImplemented},
		"discharge nil": {amqp.AppendValueSection(nil, (&amqp.Discharge{}).Append(nil)), amqp.ErrCondTransactionUnknownID},
	} {
		_, err := s.coordinate(tc.body, false)
		s.want(name, err, tc.want)
	}
	if st, err := s.coordinate(amqp.AppendValueSection(nil, new(amqp.Declare).Append(nil)), true); st != nil || err != nil || len(s.open) != 0 {
		t.Errorf("declare sent settled = %v, %v with %d open, want nothing at all", st, err, len(s.open))
	}
}

func FuzzCoordinator(f *testing.F) {
	f.Add(amqp.AppendValueSection(nil, new(amqp.Declare).Append(nil)))
	f.Add(amqp.AppendValueSection(nil, (&amqp.Discharge{TxnID: []byte("x"), Fail: true}).Append(nil)))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &coordinator{b: &Broker{}, txns: &transactions{now: time.Now}}
		st, err := c.perform(&server.Delivery{Payload: body})
		declared, isDeclared := st.(*amqp.Declared)
		if err == nil && !isDeclared {
			t.Errorf("answer = %v, want an error or declared: no transaction exists", st)
		}
		if isDeclared && (len(declared.TxnID) == 0 || len(c.txns.open) != 1) {
			t.Errorf("declared %x, %d open", declared.TxnID, len(c.txns.open))
		}
		c.txns.abandon(nil)
	})
}
