// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestARequestThatStatesAHeaderTwiceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   string // what the refusal says, "" = none
	}{
		"nothing":                      {http.Header{}, ""},
		"each once":                    {http.Header{"Authorization": {"a"}, "Orderid": {"1"}, "Brokerproperties": {"{}"}}, ""},
		"a token":                      {http.Header{"Authorization": {"a", "b"}}, "Authorization"},
		"the same token":               {http.Header{"Authorization": {"a", "a"}}, "Authorization"},
		"the properties of the broker": {http.Header{"Brokerproperties": {"{}", "{}"}}, "Brokerproperties"},
		"a property":                   {http.Header{"Orderid": {"1", "2"}}, "Orderid"},
		"a deadline":                   {http.Header{"Overdue-Within": {"1h", "2h"}}, "Overdue-Within"},
		"a content type":               {http.Header{"Content-Type": {"a/b", BatchContentType}}, "Content-Type"},
		"a token for a forward":        {http.Header{"Servicebussupplementaryauthorization": {"a", "b"}}, "Servicebussupplementaryauthorization"},
		"what nobody acts on":          {http.Header{"Accept": {"a", "b"}, "X-Forwarded-For": {"a", "b"}, "Via": {"a", "b"}}, ""},
	} {
		err := CheckOnce(c.header, "timeout=5")
		if (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

func TestAQueryThatStatesAParameterTwiceIsRefused(t *testing.T) {
	for query, want := range map[string]bool{
		"": true, "timeout=5": true, "timeout=5&api-version=2021-05": true, "api-version=2021-05&%24skip=0&$top=9": true,
		"timeout=5&timeout=60": false, "timeout=5&timeout=5": false, "timeout=5&Timeout=60": false, "timeout=5&%74imeout=60": false,
		"timeout=5;timeout=60": false, "timeout=%zz": false,
	} {
		if err := CheckOnce(http.Header{}, query); (err == nil) != want || err != nil && !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: %v, want it taken: %v", query, err, want)
		}
	}
}

func TestJSONThatStatesAKeyTwiceIsRefused(t *testing.T) {
	for body, want := range map[string]bool{
		`[{"Body":"a"}]`: true,
		`[{"Body":"a","BrokerProperties":{"TimeToLive":1,"MessageId":"1"},"UserProperties":{"a":1,"A":2}}]`: true,
		`[{"Body":"a"},{"Body":"b"}]`:                                                        true,
		`[{"Body":"a","Body":"b"}]`:                                                          false,
		`[{"Body":"a","body":"b"}]`:                                                          false,
		`[{"BrokerProperties":{"TimeToLive":1,"TimeToLive":2}}]`:                             false,
		`[{"BrokerProperties":{"TimeToLive":1,"timetolive":2}}]`:                             false,
		`[{"BrokerProperties":{},"brokerproperties":{"TimeToLive":2}}]`:                      false,
		`[{"UserProperties":{"overdue-within":"1h","overdue-within":"2h"}}]`:                 false,
		`[{"UserProperties":{"overdue-within":"1h","overdue-\u0077ithin":"2h"}}]`:            false,
		`[{"Body":"a","Extra":[{"x":{"y":1,"Y":2}}]}]`:                                       false,
		`[{"Body":"a","Extra":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]`: false,
	} {
		_, err := ParseBatch([]byte(body))
		if (err == nil) != want || err != nil && !errors.Is(err, ErrBadRequest) {
			t.Errorf("ParseBatch(%.80s) = %v, want it to be taken: %v", body, err, want)
		}
	}
	for header, want := range map[string]bool{
		`{"TimeToLive":1}`: true, `{"TimeToLive":1,"TimeToLive":1}`: false, `{"TimeToLive":1,"TIMETOLIVE":2}`: false,
	} {
		_, err := ParseSingle(http.Header{"Brokerproperties": {header}}, nil)
		if (err == nil) != want {
			t.Errorf("BrokerProperties %s = %v, want it to be taken: %v", header, err, want)
		}
	}
}
