// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
	"go.yaml.in/yaml/v3"

	"overdue/internal/broker/quirk"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// markdown is the report for an issue.
func markdown(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// quirksOf reads settings as a configuration is read.
func quirksOf(t *testing.T, settings string) quirk.Set {
	t.Helper()
	var c struct {
		Broker struct{ Quirks []string }
	}
	if err := yaml.Unmarshal([]byte(settings), &c); err != nil {
		t.Errorf("settings that cannot be read: %v\n%s", err, settings)
	}
	return quirk.Of(c.Broker.Quirks...)
}

// secrets is what a report for an issue must not have.
var secrets = []string{"contoso", "orders", "10.1.2.3", "c2VjcmV0", "RootManage", "11111111"}

// An error of the service or of the network may name the namespace. The report for an issue has its
// code alone, and the one on the terminal has its words.
func TestAReportForAnIssueNamesNothing(t *testing.T) {
	const words = "contoso.servicebus.windows.net (10.1.2.3): no claim of RootManage on orders|<b>, key c2VjcmV0, tenant 11111111-0000"
	for _, c := range []struct {
		err  error
		want string
	}{
		{&amqp.Error{Condition: "amqp:unauthorized-access", Description: words}, "amqp:unauthorized-access"},
		{&amqp.Error{Condition: "amqp:link:stolen", Description: words}, "amqp:link:stolen"},
		{&amqp.Error{Condition: "contoso:orders", Description: words}, "an error"},
		{&link.StatusError{Code: 503, Description: words}, "status 503"},
		{&azcore.ResponseError{StatusCode: 401, ErrorCode: words}, "status 401"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: words}}, "a failure of the network"},
		{fmt.Errorf("%s: %w", words, context.DeadlineExceeded), "a timeout"},
		{errors.New(words), "an error"},
	} {
		for _, found := range []answer{refused("accepting a session", c.err), failed(fmt.Errorf("create the queue orders: %w", c.err))} {
			r := &Result{ID: "session-filter", Certainty: ReliedOn}
			r.set(found)
			text := markdown(t, &Report{Tier: words, Results: []*Result{r}})
			for _, s := range secrets {
				if strings.Contains(text, s) {
					t.Errorf("the report has %q:\n%s", s, text)
				}
			}
			if !strings.Contains(text, c.want+" |") {
				t.Errorf("the report has not %q:\n%s", c.want, text)
			}
			if found.verdict == Otherwise && !strings.HasPrefix(r.Detail, "accepting a session failed: ") {
				t.Errorf("the detail is %q, want it to begin with what failed", r.Detail)
			}
		}
	}
	r := &Result{}
	r.set(failed(fmt.Errorf("peek: %w", errHidden)))
	if r.public != string(errHidden) {
		t.Errorf("what a trial has seen is %q in the report, want %q", r.public, errHidden)
	}
}

// refusing is an administration API that allows nothing, and says where.
type refusing struct{}

func (refusing) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusUnauthorized,
		Status:     "401 Unauthorized",
		Header:     http.Header{},
		Body:       io.NopCloser(strings.NewReader("<Error><Code>401</Code><Detail>Manage claim required: " + r.URL.String() + "</Detail></Error>")),
		Request:    r,
	}, nil
}

func TestATrialThatIsRefusedSaysSoWithoutNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t)
		client, err := admin.NewClientFromConnectionString("Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=RootManage;SharedAccessKey=c2VjcmV0",
			&admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: refusing{}}})
		if err != nil {
			t.Fatal(err)
		}
		report, err := Try(t.Context(), Config{Client: ns.Client(t), Links: ns.Links(t), Admin: client}, "peek-page")
		if err == nil {
			t.Error("Try = nil, want that the queue could not be deleted")
		}
		report.Version, report.SDK, report.Tier = "v1.2.3", "azservicebus v1.11.0", "Standard"
		text := markdown(t, report)
		for _, want := range []string{"| Overdue | v1.2.3 |", "| SDK for Go | azservicebus v1.11.0 |", "| tier | Standard |", "| date | " + time.Now().UTC().Format(time.DateOnly) + " |",
			"| could not tell | `peek-page` | A | creating a queue failed: status 401 |"} {
			if !strings.Contains(text, want) {
				t.Errorf("the report has not %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "overdue-verify") || strings.Contains(text, "yaml") {
			t.Errorf("the report names a queue, or has settings without a quirk:\n%s", text)
		}
	})
}
