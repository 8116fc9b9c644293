// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// inOrder is the transport of an SDK.
type inOrder struct {
	api *Admin
	in  bool
}

func (o inOrder) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", apiHost
	if o.in {
		return InOrder(r, o.api.Client.Do)
	}
	return o.api.Client.Do(r)
}

// The SDK for Go writes ForwardTo behind elements that come after it.
func TestAnSDKChangesAQueueWithoutTakingItsForward(t *testing.T) {
	s := serve(t)
	client := func(in bool) *admin.Client {
		c, err := admin.NewClientFromConnectionString("Endpoint=sb://"+apiHost+";SharedAccessKeyName=manager;SharedAccessKey=bWFuYWdl", &admin.ClientOptions{
			ClientOptions: azcore.ClientOptions{Transport: inOrder{s.admin("manager", "bWFuYWdl"), in}, Retry: policy.RetryOptions{MaxRetries: -1}},
		})
		s.must(err)
		return c
	}
	_, err := client(true).CreateQueue(t.Context(), "to", nil)
	s.must(err)
	forward := "sb://" + apiHost + "/to"
	_, err = client(true).CreateQueue(t.Context(), "from", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{ForwardTo: &forward, UserMetadata: &forward}})
	s.must(err)
	update := func(in bool, lock string) {
		t.Helper()
		q, err := client(in).GetQueue(t.Context(), "from", nil)
		s.must(err)
		q.LockDuration = &lock
		_, err = client(in).UpdateQueue(t.Context(), "from", q.QueueProperties, nil)
		s.must(err)
	}
	update(true, "PT30S")
	if q, err := s.ns.QueueInfo("from"); err != nil || q.Config.LockDuration != 30*time.Second || q.Config.ForwardTo == "" || q.Config.UserMetadata == "" {
		t.Errorf("after an update in order the queue is %+v, %v; want it with its forward and metadata", q.Config, err)
	}
	update(false, "PT40S")
	info, err := s.admin("manager", "bWFuYWdl").Read(t.Context(), "from")
	if err != nil || info.LockDuration != 40*time.Second || info.ForwardTo != "" {
		t.Errorf("after an update out of order the queue reads %+v, %v; want it without a forward", info, err)
	}
	update(true, "PT50S")
	if q, err := s.ns.QueueInfo("from"); err != nil || q.Config.ForwardTo != "" || strings.Contains(q.Config.Unapplied["EnablePartitioning"], "to") {
		t.Errorf("the queue is %+v, %v; want that what did not hold is not put in force", q.Config, err)
	}
}
