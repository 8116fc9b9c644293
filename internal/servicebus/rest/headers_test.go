// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHeadersOfTheRequestAreProperties(t *testing.T) {
	h := http.Header{}
	for name, value := range map[string]string{
		"Priority": "High", "Customer": `"12345,ABC"`, "Escaped": `"say \"hi\" \\ bye"`, "Count": "42", "Negative": "-7", "Large": "8555111000",
		"Ratio": "3.14", "Exponent": "1e3", "Yes": "true", "No": "False", "Phone": "+49123", "Zip": "01234", "Hex": "0x10", "Nan": "NaN",
		"Http-Date": "Sun, 06 Nov 2033 08:49:37 GMT", "Iso-Date": "2033-11-06T08:49:37.5Z", "Quoted-Number": `"42"`, "Quoted-Date": `"Sun, 06 Nov 2033 08:49:37 GMT"`, "Quoted-Iso": `"2033-11-06T08:49:37Z"`, "Control": `"a\u000ab\u00ffc\u"`, "Empty": "", "Lone": `"`,
		"overdue-within": "30s", "ce-expirytime": "2033-11-06T08:49:37Z", "Utf8": "grün",
		// These are not properties.
		"Authorization": "SharedAccessSignature x", "BrokerProperties": "{}", "Content-Type": "text/plain", "Host": "h", "User-Agent": "curl",
		"X-Forwarded-For": "1.2.3.4", "Sec-Fetch-Mode": "cors", "Accept": "*/*", "X-Ms-Retrypolicy": "NoRetry", "Servicebusauthorization": "x",
	} {
		h.Set(name, value)
	}
	h.Add("Twice", "a")
	h.Add("Twice", "b")
	got, err := CustomProperties(h)
	if err != nil {
		t.Fatal(err)
	}
	date := time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)
	want := map[string]any{
		"Priority": "High", "Customer": "12345,ABC", "Escaped": `say "hi" \ bye`, "Count": int32(42), "Negative": int32(-7), "Large": int64(8555111000),
		"Ratio": 3.14, "Exponent": 1000.0, "Yes": true, "No": false, "Phone": "+49123", "Zip": "01234", "Hex": "0x10", "Nan": "NaN",
		"Http-Date": date, "Iso-Date": date.Add(time.Second / 2), "Quoted-Number": "42", "Quoted-Date": date, "Quoted-Iso": "2033-11-06T08:49:37Z", "Control": "a\nbu00ffcu", "Empty": "", "Lone": `"`,
		"overdue-within": "30s", "ce-expirytime": date, "Utf8": "grün", "Twice": "a, b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestAHeaderThatIsNotTextIsRefused(t *testing.T) {
	if _, err := CustomProperties(http.Header{"Name": {"gr\xfcn"}}); !errors.Is(err, ErrBadRequest) {
		t.Errorf("CustomProperties = %v, want a bad request", err)
	}
}
