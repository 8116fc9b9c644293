// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

// brimSize is the largest message of the scenes here.
const brimSize = 16 << 10

// brim sends a batch that is as large as the link allows: n messages without ids, as change
// makes them.
func (s *scene) brim(entity string, n int, change func(i int, m *amqp.Message)) {
	s.Helper()
	must := func(err error) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
	}
	const batchFormat = 0x80013700
	build := func(bodies int) *amqp.Message {
		batch := &amqp.Message{Format: batchFormat}
		for i := range n {
			size := bodies / n
			if i == 0 {
				size += bodies % n
			}
			m := amqp.NewMessage(make([]byte, size))
			change(i, m)
			b, err := m.MarshalBinary()
			must(err)
			batch.Data = append(batch.Data, b)
		}
		return batch
	}
	size := func(m *amqp.Message) int {
		b, err := m.MarshalBinary()
		must(err)
		return len(b)
	}
	bodies := n
	for room := brimSize - size(build(bodies)); room > 0; room = brimSize - size(build(bodies)) {
		if room > 8*n { // their lengths take more bytes, too
			bodies += room - 8*n
		} else {
			bodies += max(room/2, 1)
		}
	}
	for size(build(bodies)) > brimSize {
		bodies--
	}
	nc, err := s.brimDial(s.Context())
	must(err)
	conn, err := amqp.NewConn(s.Context(), nc, &amqp.ConnOptions{HostName: "endpoint", SASLType: amqp.SASLTypeAnonymous()})
	must(err)
	defer func() { must(conn.Close()) }()
	session, err := conn.NewSession(s.Context(), nil)
	must(err)
	sender, err := session.NewSender(s.Context(), entity, nil)
	must(err)
	if most := sender.MaxMessageSize(); most != brimSize {
		s.Fatalf("the link takes %d bytes, want %d", most, brimSize)
	}
	must(sender.Send(s.Context(), build(bodies), nil))
}

// A batch that has no room for the ids that its messages lack passes the proxy, and each message
// that nobody receives in time is dead-lettered, with one event. The monitor's own tests play other
// kinds of entities.
func TestBatchWithoutRoomForIDsPassesTheProxy(t *testing.T) {
	const n, life = 25, 3 * time.Second
	for _, slots := range []bool{false, true} {
		t.Run(fmt.Sprint("slots ", slots), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				s.brimDial = s.endpoint()
				for range 2 { // both are in the windows of both
					s.brim(workQueue, n, func(_ int, m *amqp.Message) { m.Header = &amqp.MessageHeader{TTL: life} })
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(life + 2*time.Second)
				if dead := len(s.Dead(workQueue)); dead != 2*n {
					s.Errorf("%d dead letters, want %d", dead, 2*n)
				}
				notifiedOnceEach(s, 2*n)
			}, func(s *scene, c *broker.Config) { c.MaxMessageSize, s.slots = brimSize, slots })
		})
	}
}

// A message without an id, which is what most SDKs send, gets none where a slot stands for it. Its
// event names it as the broker does, or by its sequence number.
func TestMissedDeadlinesOfMessagesWithoutAnID(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		app := s.app(s.endpoint())
		const n = 40
		for i := range n {
			life := 2*time.Second + time.Duration(i)*50*time.Millisecond
			m := &azservicebus.AMQPAnnotatedMessage{
				Header: &azservicebus.AMQPAnnotatedMessageHeader{TTL: life},
				Body:   azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("body")}},
			}
			if i%2 == 0 { // the broker makes no id up then
				m.Properties = &azservicebus.AMQPAnnotatedMessageProperties{MessageID: ""}
			}
			s.Must(app.SendAMQPAnnotatedMessage(s.Context(), m, nil))
		}
		time.Sleep(10 * time.Second)
		var want []string
		for _, v := range s.Dead(workQueue) {
			name := v.MessageID
			switch len(name) {
			case 0:
				name = fmt.Sprint("#", v.SequenceNumber)
			case 32: // digits of the broker's
			default:
				s.Errorf("message %d has the id %q, want none of the endpoint's", v.SequenceNumber, name)
			}
			want = append(want, name)
		}
		slices.Sort(want)
		if got := s.Hook.Subjects(); len(want) != n || !slices.Equal(got, want) {
			s.Errorf("notified of %d messages, %v, want the %d dead letters of %d: %v", len(got), got, len(want), n, want)
		}
		if lags := s.Lags(workQueue); len(lags) != n || lags[n-1] > 250*time.Millisecond {
			s.Errorf("lags %v, want %d of 250 ms at most", lags, n)
		}
		s.Settled(time.Second)
	}, func(s *scene, _ *broker.Config) { s.slots = true })
}
