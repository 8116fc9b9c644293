// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"strings"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
)

// premium gives a namespace messages that only the Premium tier has.
func premium(c *broker.Config, _ *adminapi.Options) { c.MaxMessageSize = 1 << 20 }

func TestTheTierIsThatOfTheLargestMessages(t *testing.T) {
	for tier, configure := range map[string][]func(*broker.Config, *adminapi.Options){"Standard": nil, "Premium": {premium}} {
		_, c := client(t, configure...)
		p, err := c.GetNamespaceProperties(t.Context(), nil)
		check(t, err)
		if p.SKU != tier || (p.MessagingUnits != nil) != (tier == "Premium") || p.Name == "" || p.CreatedTime.IsZero() || p.ModifiedTime.IsZero() {
			t.Errorf("GetNamespaceProperties = %+v, want the tier %s, a name and times; units on Premium alone", p.NamespaceProperties, tier)
		}
	}
}

// Live tests of the JavaScript and Python SDKs have all of these refused.
func TestTheSizeOfMessagesIsThatOfTheTier(t *testing.T) {
	kilobytes := func(kind, n string) string {
		return describe(kind, "<MaxMessageSizeInKilobytes>"+n+"</MaxMessageSizeInKilobytes>")
	}
	_, standard := setup(t)
	_, large := setup(t, premium)
	_, largest := setup(t, func(c *broker.Config, _ *adminapi.Options) { c.MaxMessageSize = 100 << 20 })
	const maxMessageSize = "MaxMessageSizeInKilobytes"
	for _, kind := range []string{"QueueDescription", "TopicDescription"} {
		for _, n := range []string{"0", "1", "10", "1023", "102401", "9999999999"} {
			answer := must(t, large, 400, "PUT", "/new"+version, kilobytes(kind, n))
			const want = "The property value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400 when the namespace 'overdue' is using 'Premium' tier."
			if !strings.Contains(answer, want) {
				t.Errorf("%s of %s kB = %s, want %q", kind, n, answer, want)
			}
		}
		for _, n := range []string{"0", "255", "1024", "102400"} {
			must(t, standard, 400, "PUT", "/new"+version, kilobytes(kind, n))
		}
		must(t, large, 201, "PUT", "/large/"+kind+version, kilobytes(kind, "102400"))
		if got := element(t, must(t, largest, 201, "PUT", "/new"+version, describe(kind, "")), maxMessageSize); got != "1024" {
			t.Errorf("%s that does not say has messages of %s kB on Premium, want 1024", kind, got)
		}
		must(t, largest, 200, "DELETE", "/new"+version, "")
		must(t, large, 400, "PUT", "/large/"+kind+version, kilobytes(kind, "1000"), "If-Match", "*")
		must(t, large, 200, "PUT", "/large/"+kind+version, kilobytes(kind, "1024"), "If-Match", "*")
		must(t, standard, 201, "PUT", "/small/"+kind+version, kilobytes(kind, "256")) // as it is read
		must(t, standard, 200, "PUT", "/small/"+kind+version, kilobytes(kind, "256"), "If-Match", "*")
		must(t, standard, 400, "PUT", "/small/"+kind+version, kilobytes(kind, "1024"), "If-Match", "*")
		for _, older := range []string{"", "?api-version=2017-04"} {
			answer := must(t, large, 400, "PUT", "/new"+older, kilobytes(kind, "1024"))
			if want := "'" + kind + "' has unsupported properties for api-version"; !strings.Contains(answer, want) {
				t.Errorf("with the version %q: %s, want %q", older, answer, want)
			}
		}
	}
}
