// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"
	"time"

	"overdue/internal/amqp"

	"github.com/google/go-cmp/cmp"
)

// A sender may put anything beside the property that states a deadline, and brokers let in more
// than a decoder has to read. The deadline counts all the same, and so does why the message is a
// dead letter.
func TestAPropertyThatCannotBeReadHidesNoOther(t *testing.T) {
	notASCII := amqp.Raw{0xa3, 2, 0xc3, 0xbc}
	for name, odd := range map[string]amqp.Pair{
		"a symbol that is not ASCII":        {Key: "kind", Value: notASCII},
		"a key that is no ASCII":            {Key: notASCII, Value: "x"},
		"a string that is not UTF-8":        {Key: "kind", Value: amqp.Raw{0xa1, 1, 0xff}},
		"a list of symbols, none ASCII":     {Key: "kind", Value: amqp.Raw{0xc0, 5, 1, 0xa3, 2, 0xc3, 0xbc}},
		"a character that there is not":     {Key: "kind", Value: amqp.Raw{0x73, 0xff, 0xff, 0xff, 0xff}},
		"a boolean that is neither":         {Key: "kind", Value: amqp.Raw{0x56, 7}},
		"a number for a key":                {Key: uint64(7), Value: "x"},
		"a map with lists for keys":         {Key: "kind", Value: amqp.Map{{Key: amqp.List{}, Value: "x"}}},
		"a symbol, which is text as well":   {Key: "kind", Value: amqp.Symbol("x")},
		"a property that is nothing at all": {Key: "kind", Value: nil},
	} {
		properties, err := amqp.AppendValue(nil, amqp.Map{
			odd,
			{Key: "overdue-within", Value: "5s"},
			{Key: amqp.Symbol("overdue-deadline"), Value: amqp.TimestampOf(time.Unix(100, 0))},
			{Key: "DeadLetterReason", Value: "TTLExpiredException"},
		})
		if err != nil {
			t.Fatal(err)
		}
		annotations, err := amqp.AppendValue(nil, amqp.Map{{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(7)}})
		if err != nil {
			t.Fatal(err)
		}
		whole := amqp.Message{MessageAnnotations: annotations, ApplicationProperties: properties}
		m, err := parseMessage(whole.Append(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.DeadLetterReason != "TTLExpiredException" {
			t.Errorf("%s: the message is a dead letter for %q, want TTLExpiredException", name, m.DeadLetterReason)
		}
		delete(m.Properties, "ü") // that of the key is text, and may be shown
		want := map[string]any{"overdue-within": "5s", "overdue-deadline": time.Unix(100, 0).UTC()}
		if diff := cmp.Diff(want, m.Properties); diff != "" {
			t.Errorf("%s: properties (-want +got):\n%s", name, diff)
		}
	}
}

// The SDKs for .NET and Java send a DateTimeOffset and a TimeSpan as described values.
func TestDeadlinesInTheTypesOfDotNETAreRead(t *testing.T) {
	properties, err := amqp.AppendValue(nil, amqp.Map{
		{Key: "overdue-within", Value: amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(300_000_000)}},
		{Key: "overdue-deadline", Value: amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 1)}},
		{Key: "site", Value: amqp.Described{Descriptor: amqp.Symbol("com.microsoft:uri"), Value: "http://example.com"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var m Message
	m.readApplicationProperties(properties)
	want := map[string]any{"overdue-within": 30 * time.Second, "overdue-deadline": time.Unix(0, 100).UTC()}
	if diff := cmp.Diff(want, m.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}
