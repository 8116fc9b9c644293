// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Two messages with one id are two messages: each lives until its own deadline.
func TestRepeatedMessageIDs(t *testing.T) {
	for _, mode := range []struct {
		name     string
		measured bool
		stamp    bool
	}{{"native", true, true}, {"by hand", true, false}, {"by hand, clock unknown", false, false}, {"native, clock unknown", false, true}} {
		t.Run(mode.name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = mode.stamp
				if mode.measured {
					s.MeasureClock()
				}
				s.startMonitor()
				within := []string{"2s", "9s", "4s", "4s", "30s"}
				for i, w := range within {
					s.send(workQueue, "same", fmt.Sprintf(`"Label":"%d"`, i), "Overdue-Within", fmt.Sprintf("%q", w))
					time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				}
				time.Sleep(15 * time.Second)
				if got := len(s.Waiting(workQueue)); got != 1 {
					s.Errorf("%d messages wait, want the one with 30s", got)
				}
				for _, m := range s.Dead(workQueue) {
					life, err := time.ParseDuration(within[m.SequenceNumber-1])
					if err != nil {
						s.Fatal(err)
					}
					lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(life))
					if lag < 0 || lag > time.Second {
						s.Errorf("message %d with %v was dead-lettered %v after its deadline, want 0 to 1s", m.SequenceNumber, life, lag)
					}
				}
				time.Sleep(20 * time.Second)
				notifiedOnceEach(s, len(within))
			})
		})
	}
}

// A check another message has shown the monitor where these stand, but their id says so of
// the last one only.
func TestRepeatedMessageIDsThatWereSeenBefore(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "first", "", "Overdue-Within", `"1s"`)
				for range 3 {
					s.send(workQueue, "same", "", "Overdue-Within", `"3s"`)
				}
				time.Sleep(10 * time.Second)
				if got := len(s.Waiting(workQueue)); got != 0 {
					s.Errorf("%d messages wait, want none", got)
				}
				notifiedOnceEach(s, 4)
			})
		})
	}
}

// A message without a deadline is not the one that a companion of another with its id speaks of,
// whatever became of that.
func TestMessageWithoutADeadlineThatSharesAnID(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = stamp
				s.startMonitor()
				for range 2 {
					s.send(workQueue, "same", "", "Overdue-Within", `"2s"`)
					r, m := s.receive(workQueue)
					s.Must(r.CompleteMessage(s.Context(), m, nil))
					s.Must(r.Close(s.Context()))
				}
				s.send(workQueue, "same", "")
				time.Sleep(time.Minute)
				if got := len(s.Waiting(workQueue)); got != 1 || len(s.Hook.Events()) != 0 {
					s.Errorf("%d messages wait and %d were notified, want the one without a deadline, and none", got, len(s.Hook.Events()))
				}
				s.Settled(time.Second)
			})
		})
	}
}

// The dead letter of yesterday's message with the same id is not the one that is due today. This
// also holds for a monitor that has only just seen it and cannot know when the other was sent.
func TestRepeatedMessageIDOfADeadLetter(t *testing.T) {
	play(t, func(s *scene) {
		stop := s.startMonitor()
		s.send(workQueue, "same", ttl(2*time.Second))
		time.Sleep(5 * time.Second)
		stop()
		s.startMonitor()
		s.send(workQueue, "received", ttl(time.Second))
		r, m := s.receive(workQueue)
		if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
		if err := r.Close(s.Context()); err != nil { // or its credit would expire what is overdue
			s.Fatal(err)
		}
		s.send(workQueue, "same", ttl(2*time.Second))
		time.Sleep(10 * time.Second)
		if got := len(s.Waiting(workQueue)); got != 0 {
			s.Errorf("%d messages wait, want none", got)
		}
		if notified := s.Hook.Events(); len(notified) == 0 || notified[len(notified)-1].Data.SequenceNumber != 3 {
			s.Errorf("notified %v, want message 3 at last", notified)
		}
		s.Settled(5 * time.Second)
	})
}

// notifiedOnceEach wants n events, each about another message.
func notifiedOnceEach(s *scene, n int) {
	s.Helper()
	var numbers []int64
	for _, e := range s.Hook.Events() {
		numbers = append(numbers, e.Data.SequenceNumber)
	}
	slices.Sort(numbers)
	if distinct := slices.Compact(slices.Clone(numbers)); len(numbers) != n || len(distinct) != n {
		s.Errorf("notified of messages %v, want each of %d once", numbers, n)
	}
	s.Settled(5 * time.Second)
}

func TestCompanionThatComesTwice(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(3*time.Second))
		again := s.newScheduler(nil)
		now := s.Scheduler.Now()
		for _, due := range []time.Duration{time.Second, 3 * time.Second, 3 * time.Second, 5 * time.Second} {
			err := again.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: now.Time.Add(due), References: []scheduler.Reference{{
				MessageID: "m", Sent: now.Time, From: now.Time.Add(-time.Second), Until: now.Time.Add(time.Second),
				Within: 3 * time.Second, Deadline: now.Time.Add(3 * time.Second), Stated: "ttl",
			}}})
			if err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != 1 {
			s.Errorf("%d dead letters, want 1", len(lags))
		}
		notifiedOnceEach(s, 1)
	})
}

// A monitor stops while it searches for more messages with an id. The next one continues. Whether one
// search or two find the second message is chance, so there are several runs.
func TestCompanionThatIsWrittenAgainForTheRestOfAnID(t *testing.T) {
	for range 5 {
		play(t, func(s *scene) {
			s.MeasureClock()
			stop := s.startMonitor()
			now := s.Scheduler.Now()
			s.Must(s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: now.Time.Add(time.Second), References: []scheduler.Reference{{
				MessageID: "same", Sent: now.Time, From: now.Time, Until: now.Time.Add(20 * time.Second),
				Within: time.Second, Deadline: now.Time.Add(time.Second), Stated: "ttl",
			}}}))
			sender, err := s.Client.NewSender(workQueue, nil)
			s.Must(err)
			send := func() {
				life := time.Second
				s.Must(sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: to.Ptr("same"), TimeToLive: &life}, nil))
			}
			send()
			send()
			time.Sleep(5 * time.Second)
			notified := len(s.Hook.Events())
			stop()
			s.startMonitor()
			send()
			time.Sleep(30 * time.Second)
			if notified != 2 {
				s.Errorf("the first monitor notified of %d messages, want 2", notified)
			}
			notifiedOnceEach(s, 3)
		})
	}
}

// Until a dead letter was recognized, one with another number may be of a message that was seen. The
// letter of a consumer shows nothing of another message with the same stamp.
func TestDeadLetterOfAConsumerWhoseIDAndStampRepeat(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		life := 2 * time.Second
		copied := func() *azservicebus.Message {
			return &azservicebus.Message{MessageID: to.Ptr("same"), TimeToLive: &life}
		}
		s.Must(s.sendAll(workQueue, copied(), copied()))
		r, first := s.receive(workQueue)
		_, second := s.receive(workQueue)
		if !first.EnqueuedTime.Equal(*second.EnqueuedTime) {
			s.Fatalf("enqueued at %v and %v, want one stamp", first.EnqueuedTime, second.EnqueuedTime)
		}
		s.Must(r.DeadLetterMessage(s.Context(), first, nil))
		s.startMonitor()
		time.Sleep(20 * time.Second) // the lock on the second one lapses
		if got := s.Hook.Events(); len(got) != 1 || got[0].Data.SequenceNumber != *second.SequenceNumber {
			s.Errorf("notified of %v, want message %d alone", got, *second.SequenceNumber)
		}
		s.Settled(5 * time.Second)
	}, func(s *scene, c *broker.Config) { c.Queues[0].LockDuration = 5 * time.Second })
}

func TestDeadlineOfTheEntity(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = stamp
				s.settings.Deadline = 2 * time.Second
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "m", "")
				time.Sleep(4 * time.Second)
				notifiedOnceEach(s, 1)
			})
		})
	}
}

func TestDefaultTimeToLiveOfTheQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "capped", ttl(time.Hour))
		s.send(workQueue, "default", "")
		time.Sleep(4 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != 2 {
			s.Errorf("%d dead letters, want both: the queue's own time-to-live caps the messages'", len(lags))
		}
		notifiedOnceEach(s, 2)
	}, func(s *scene, c *broker.Config) {
		c.Queues[0].DefaultMessageTimeToLive = 3 * time.Second
		s.settings.DefaultMessageTimeToLive = 3 * time.Second
	})
}

// The time-to-live of a scheduled message starts when it is activated.
func TestScheduledWorkMessage(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		at := time.Now().Add(30 * time.Second)
		s.send(workQueue, "m", ttl(2*time.Second)+fmt.Sprintf(`,"ScheduledEnqueueTimeUtc":%q`, at.UTC().Format(http.TimeFormat)))
		time.Sleep(31 * time.Second)
		if got := len(s.Waiting(workQueue)); got != 1 {
			s.Errorf("%d messages wait a second after the activation, want 1", got)
		}
		time.Sleep(3 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != 1 {
			s.Errorf("%d dead letters, want 1", len(lags))
		}
		notifiedOnceEach(s, 1)
	})
}

// A message has another number once it is activated. One that was seen before then is not gone.
func TestScheduledWorkMessageThatIsSeenBeforeItsActivation(t *testing.T) {
	play(t, func(s *scene) {
		s.startMonitor()
		sender, err := s.Client.NewSender(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		at := time.Now().Add(2 * time.Second)
		life := time.Second
		if _, err := sender.ScheduleMessages(s.Context(), []*azservicebus.Message{{MessageID: to.Ptr("m"), TimeToLive: &life}}, at, nil); err != nil {
			s.Fatal(err)
		}
		err = s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: time.Now(), References: []scheduler.Reference{{
			MessageID: "m", Sent: time.Now(), Within: life, Deadline: at.Add(life), Stated: "ttl",
		}}})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != 1 {
			s.Errorf("%d dead letters, want 1", len(lags))
		}
		notifiedOnceEach(s, 1)
	})
}

// A queue may be deleted while an alert about one of its messages still finds no taker.
func TestMissedDeadlineOfADeletedQueueIsNotified(t *testing.T) {
	play(t, func(s *scene) {
		s.startMonitor()
		now := time.Now()
		fresh := scheduler.Reference{MessageID: "fresh", Sent: now, Deadline: now}
		missed := scheduler.Reference{MessageID: "missed", Sent: now, Deadline: now, Missed: &scheduler.Missed{
			SequenceNumber: 7, EnqueuedTime: now, Deadline: now, DeadLetteredTime: now, DeadLetterReason: "TTLExpiredException", Strategy: "native",
		}}
		err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: "nowhere", Due: now, References: []scheduler.Reference{fresh, missed}})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := s.Hook.Subjects(); len(got) != 1 || got[0] != "missed" {
			s.Errorf("notified of %v, want of the one that was missed", got)
		}
		time.Sleep(65 * time.Minute) // the other one waits for its queue
		if dead := s.Dead(monitorQueue); len(dead) != 0 {
			s.Errorf("%d companions were dead-lettered, want none", len(dead))
		}
		s.Settled(time.Second)
	})
}

func TestCompanionThatCannotBeReadIsDeadLettered(t *testing.T) {
	play(t, func(s *scene) {
		s.startMonitor()
		sender, err := s.Client.NewSender(monitorQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		defer func() { _ = sender.Close(s.Context()) }()
		for _, body := range []string{"", "garbage", `{"version":1}`, `{"version":99,"kind":"each","entity":"orders"}`, `{"version":1,"kind":"slot","entity":"orders"}`} {
			if err := sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte(body)}, nil); err != nil {
				s.Fatal(err)
			}
		}
		missing := `{"version":1,"kind":"each","entity":"nowhere","references":[{"messageId":"m","withinMs":1}]}`
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte(missing), MessageID: to.Ptr("missing")}, nil); err != nil {
			s.Fatal(err)
		}
		s.send(workQueue, "m", ttl(time.Second))
		time.Sleep(5 * time.Second)
		reasons := map[string]int{}
		for _, m := range s.Dead(monitorQueue) {
			reasons[m.DeadLetterReason]++
			if m.DeadLetterErrorDescription == "" {
				s.Errorf("%s has no description", m.DeadLetterReason)
			}
		}
		if reasons["CompanionMalformed"] != 5 || len(reasons) != 1 {
			s.Errorf("dead letters of the monitor queue by reason: %v, want 5 malformed", reasons)
		}
		time.Sleep(65 * time.Minute) // the one that names no queue waits for it
		notifiedOnceEach(s, 1)
	})
}

// A message states a deadline that is later than the end of its life, which the default of its
// queue has shortened. The earlier instant is what it was late for.
func TestDeadlineBeyondTheTimeToLive(t *testing.T) {
	inModes(t, func(s *scene, c *broker.Config) {
		c.Queues[0].DefaultMessageTimeToLive = 5 * time.Second
		s.settings.DefaultMessageTimeToLive = 5 * time.Second
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "within", "", "Overdue-Within", `"8s"`)
		s.send(workQueue, "instant", "", "Overdue-Deadline", fmt.Sprintf("%q", time.Now().Add(8*time.Second).UTC().Format(time.RFC3339Nano)))
		time.Sleep(20 * time.Second)
		s.wantNotified("instant", "within")
		ends := map[string]time.Time{}
		for _, m := range s.Dead(workQueue) {
			ends[m.MessageID] = m.ExpiresAt
		}
		for _, e := range s.Hook.Events() {
			if off := e.Data.Deadline.Sub(ends[e.Subject]).Abs(); off > time.Millisecond || e.Data.LagMs < 0 {
				s.Errorf("%s: notified of a deadline %v away from the end of its life, and a lag of %d ms", e.Subject, off, e.Data.LagMs)
			}
			// When an instant is over that is beyond the end is all that its companion knows.
			if e.Subject == "within" && e.Data.LagMs > 1000 {
				s.Errorf("%s: notified of a lag of %d ms, want 1000 at most", e.Subject, e.Data.LagMs)
			}
		}
		s.Settled(time.Second)
	})
}
