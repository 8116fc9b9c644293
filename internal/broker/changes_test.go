// SPDX-License-Identifier: Apache-2.0

package broker

import "testing"

func TestChangesGrowWithWhatIsChanged(t *testing.T) {
	b, err := New(Config{AutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // nothing is served
	n := b.Default()
	before := n.Changes()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"create a queue", func() error { return b.AddQueue(QueueConfig{Name: "q"}) }},
		{"update it", func() error { _, err := n.UpdateQueue(QueueConfig{Name: "q", MaxDeliveryCount: 3}); return err }},
		{"create a topic", func() error { _, err := n.CreateTopic(TopicConfig{Name: "t"}); return err }},
		{"create a subscription", func() error { _, err := n.CreateSubscription("t", SubscriptionConfig{Name: "s"}); return err }},
		{"update it", func() error {
			_, err := n.UpdateSubscription("t", SubscriptionConfig{Name: "s", MaxDeliveryCount: 3})
			return err
		}},
		{"delete it", func() error { return n.DeleteSubscription("t", "s") }},
		{"delete the topic", func() error { return n.DeleteTopic("t") }},
		{"make a queue by using it", func() error { _, err := n.Entity("made"); return err }},
		{"reset", n.Reset},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if now := n.Changes(); now <= before {
			t.Errorf("%s: %d changes, want more than %d", step.what, now, before)
		} else {
			before = now
		}
	}
	if _, err := n.QueueInfo("q"); err == nil || n.Changes() != before {
		t.Error("a look is counted as a change")
	}
}
