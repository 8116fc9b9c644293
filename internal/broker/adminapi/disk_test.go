// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	brokerqueue "overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

func onDisk(d *brokertest.SlowDisk) func(*broker.Config, *adminapi.Options) {
	return func(c *broker.Config, _ *adminapi.Options) { c.Disk = d }
}

// Entities that the SDKs of four languages make stay, to the last element.
func TestEntitiesAreDescribedAlikeAfterARestart(t *testing.T) {
	for name, body := range bodies(t) {
		t.Run(name, func(t *testing.T) {
			disk := &brokertest.SlowDisk{Prompt: true}
			n, api := setup(t, onDisk(disk))
			scene(t, n)
			at := place(body)
			if status, answer := ask(api, http.MethodPut, at+version, body); status != http.StatusCreated {
				t.Fatalf("PUT = %d, want 201\n%s", status, answer)
			}
			before := must(t, api, http.StatusOK, http.MethodGet, at+version, "")
			_, again := setup(t, onDisk(disk.PowerLost()))
			after := must(t, again, http.StatusOK, http.MethodGet, at+version, "")
			if diff := cmp.Diff(strings.Split(before, "><"), strings.Split(after, "><")); diff != "" {
				t.Errorf("after a restart (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAnswersWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &brokertest.SlowDisk{}
		_, api := setup(t, onDisk(disk))
		const s, r = "/t/Subscriptions/s", "/t/Subscriptions/s/Rules/r"
		update := []string{"If-Match", "*"}
		for _, step := range []struct {
			method, path, body string
			header             []string
			want               int
		}{
			{http.MethodPut, "/q", queue, nil, http.StatusCreated},
			{http.MethodPut, "/t", topic, nil, http.StatusCreated},
			{http.MethodPut, s, subscription, nil, http.StatusCreated},
			{http.MethodPut, r, trueRule, nil, http.StatusCreated},
			{http.MethodPut, "/q", describe("QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>"), update, http.StatusOK},
			{http.MethodPut, "/t", topic, update, http.StatusOK},
			{http.MethodPut, s, describe("SubscriptionDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>"), update, http.StatusOK},
			{http.MethodPut, r, trueRule, update, http.StatusOK},
			{http.MethodDelete, r, "", nil, http.StatusOK},
			{http.MethodDelete, s, "", nil, http.StatusOK},
			{http.MethodDelete, "/t", "", nil, http.StatusOK},
			{http.MethodDelete, "/q", "", nil, http.StatusOK},
		} {
			disk.Until(t, step.method+" "+step.path, func() error {
				status, answer := ask(api, step.method, step.path+version, step.body, step.header...)
				if status != step.want {
					return fmt.Errorf("status %d, want %d: %s", status, step.want, answer)
				}
				return nil
			})
		}
	})
}

// Otherwise a client that tries again gets the answer that the entity exists already, or not any
// more.
func TestNothingChangesWhileTheDiskIsInTrouble(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	n, api := setup(t, onDisk(disk))
	scene(t, n)
	for cause, want := range map[error]int{
		brokerqueue.ErrNoRoom:    http.StatusForbidden,
		brokerqueue.ErrNotStored: http.StatusServiceUnavailable,
	} {
		disk.Fail(cause)
		changes := n.Changes()
		must(t, api, want, http.MethodPut, "/new"+version, queue)
		must(t, api, want, http.MethodPut, "/fwd"+version, queue, "If-Match", "*")
		must(t, api, want, http.MethodPut, "/t/Subscriptions/s/Rules/r"+version, trueRule)
		must(t, api, want, http.MethodDelete, "/t"+version, "")
		if n.Changes() != changes {
			t.Errorf("while the disk says %q, entities change", cause)
		}
		if rules, err := n.Rules("t", "s"); err != nil || len(rules) != 1 {
			t.Errorf("while the disk says %q, there are %d rules, %v, want 1", cause, len(rules), err)
		}
	}
	disk.Fail(nil)
	must(t, api, http.StatusCreated, http.MethodPut, "/new"+version, queue)
	if _, err := n.QueueInfo("new"); errors.Is(err, broker.ErrEntityNotFound) {
		t.Error("a queue that was created when the disk was well again is not there")
	}
}
