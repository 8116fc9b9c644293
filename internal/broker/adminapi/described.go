// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"overdue/internal/broker"
	"overdue/internal/servicebus/atom"
)

// Descriptions of entities as a namespace answers with them, read as those that clients send. What
// the broker does not take is among the problems, one for each element, and is left out.

// DescribedQueue reads a QueueDescription.
func DescribedQueue(n *atom.Node) (q broker.QueueConfig, problems []error) {
	info := broker.QueueInfo{}
	problems = readEntity(n, queueFields, &info)
	return info.Config, problems
}

// DescribedTopic reads a TopicDescription.
func DescribedTopic(n *atom.Node) (t broker.TopicConfig, problems []error) {
	info := broker.TopicInfo{}
	problems = readEntity(n, topicFields, &info)
	return info.Config, problems
}

// DescribedSubscription reads a SubscriptionDescription.
func DescribedSubscription(n *atom.Node) (s broker.SubscriptionConfig, problems []error) {
	info := broker.SubscriptionInfo{}
	problems = readEntity(n, subscriptionFields, &info)
	return info.Config, problems
}

// DescribedRule reads a RuleDescription.
func DescribedRule(n *atom.Node) (broker.RuleConfig, error) { return readRule(nodeOf(n, nil)) }

func readEntity[T any](n *atom.Node, fields []field[T], v *T) (problems []error) {
	d := nodeOf(n, nil)
	for _, f := range fields {
		if c := d.child(f.name); c != nil && f.read != nil {
			if err := f.read(c, v); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}
