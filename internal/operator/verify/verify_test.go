// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/httpapitest"
)

// overHTTP leads what a client means for HTTPS to the embedded broker.
type overHTTP struct{ *http.Client }

func (o overHTTP) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return o.Client.Do(r)
}

// administration is the SDK's client of the administration API of the embedded broker.
func administration(t *testing.T, ns *brokertest.Namespace) *admin.Client {
	t.Helper()
	client, err := admin.NewClientFromConnectionString(ns.ConnectionString(), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: overHTTP{&http.Client{Transport: httpapitest.Transport(t, ns.Broker)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// try tries assumptions on an embedded broker with quirks, on fake time.
func try(t *testing.T, quirks quirk.Set, only ...string) (report *Report) {
	t.Helper()
	ns := brokertest.New(t, func(c *broker.Config) { c.AutoCreate, c.Quirks = false, quirks })
	report, err := Try(t.Context(), Config{Client: ns.Client(t), Links: ns.Links(t), Admin: administration(t, ns)}, only...)
	if err != nil {
		t.Errorf("Try = %v", err)
	}
	if left := ns.Broker.Default().Queues(); len(left) > 0 {
		t.Errorf("%d queues are left, want none", len(left))
	}
	return report
}

func TestTheEmbeddedBrokerIsAsAssumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		report := try(t, 0)
		for i, r := range report.Results {
			want := AsAssumed
			if !Assumptions[i].Tried() {
				want = Unknown
			}
			if r.Verdict != want {
				t.Errorf("%s: %s (%s), want %s", r.ID, r.Verdict, r.Detail, want)
			}
			if r.operations > Assumptions[i].operations {
				t.Errorf("%s: %d operations, which is more than the %d that are stated", r.ID, r.operations, Assumptions[i].operations)
			}
		}
		if took := time.Since(began); took > timeLimit {
			t.Errorf("the trials took %v, want %v at most", took, timeLimit)
		}
	})
}

// Each quirk is noticed by the trial of its assumption. It may show in others as well.
func TestAQuirkIsNoticed(t *testing.T) {
	for i := range Assumptions {
		a := &Assumptions[i]
		if a.Quirk == 0 {
			continue
		}
		t.Run(a.Quirk.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report := try(t, a.Quirk)
				if !report.Quirks().Has(a.Quirk) || quirksOf(t, report.Settings()) != report.Quirks() {
					t.Errorf("the report has the settings\n%swant the quirk %s", report.Settings(), a.Quirk)
				}
				if text := markdown(t, report); !strings.Contains(text, "| otherwise | `"+a.ID+"` | "+string(a.Mark)+" | ") || !strings.Contains(text, report.Settings()) {
					t.Errorf("the report for an issue has not both what is otherwise and the settings:\n%s", text)
				}
				for _, r := range report.Results {
					switch {
					case r.ID == a.ID && (r.Verdict != Otherwise || r.Detail == ""):
						t.Errorf("%s: %s (%s), want otherwise", r.ID, r.Verdict, r.Detail)
					case r.ID == a.ID:
						t.Logf("%s: %s", r.ID, r.Detail)
					case r.Verdict == Otherwise:
						t.Errorf("%s: otherwise as well: %s", r.ID, r.Detail)
					case r.Verdict == Unknown && !strings.HasPrefix(r.Detail, "not tried"):
						t.Logf("%s: %s (%s)", r.ID, r.Verdict, r.Detail)
					}
				}
			})
		})
	}
}

func TestEachQuirkBelongsToAnAssumption(t *testing.T) {
	var all quirk.Set
	seen := map[string]bool{}
	for i := range Assumptions {
		a := &Assumptions[i]
		all |= a.Quirk
		if seen[a.ID] || a.ID == "" || a.What == "" || a.Source == "" || a.Otherwise == "" || a.Tried() == (a.untried != "") {
			t.Errorf("%s: a row of the table is incomplete, or there are two", a.ID)
		}
		seen[a.ID] = true
	}
	for _, q := range quirk.All {
		if !all.Has(q.Set) {
			t.Errorf("the quirk %s belongs to no assumption", q.Name)
		}
	}
}

func TestAReportInWhichNothingCouldBeTriedFails(t *testing.T) {
	var results []*Result
	for _, id := range IDs() {
		results = append(results, &Result{ID: id, Verdict: Unknown})
	}
	if err := (&Report{Results: results}).Err(false); err == nil || !strings.Contains(err.Error(), "could not be tried, and no other was") {
		t.Errorf("Err = %v where nothing could be tried, want that", err)
	}
	results[0].Verdict = AsAssumed
	if err := (&Report{Results: results}).Err(false); err != nil {
		t.Errorf("Err = %v where one is as assumed, want nil", err)
	}
}
