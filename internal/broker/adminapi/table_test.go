// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/servicebus/atom"
)

func TestTablesAreInTheOrderOfTheService(t *testing.T) {
	for kind, got := range map[string][]string{
		"QueueDescription": names(queueFields), "TopicDescription": names(topicFields), "SubscriptionDescription": names(subscriptionFields),
	} {
		if diff := cmp.Diff(atom.Elements[kind], got); diff != "" {
			t.Errorf("fields of a %s (-want +got):\n%s", kind, diff)
		}
	}
}

func names[T any](fields []field[T]) (all []string) {
	for _, f := range fields {
		all = append(all, f.name)
	}
	return all
}
