// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"testing"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

func TestOnlyOneOperationThatIsKnownCounts(t *testing.T) {
	asks := func(pairs ...amqp.Pair) []byte {
		properties, err := amqp.AppendValue(nil, amqp.Map(pairs))
		if err != nil {
			t.Fatal(err)
		}
		m := amqp.Message{ApplicationProperties: properties}
		return m.Append(nil)
	}
	const peek, schedule = rights.PeekMessage, rights.ScheduleMessage
	queue, dead := address.Address{Name: "q", Node: address.Management}, address.Address{Name: "q", SubQueue: address.DeadLetter, Node: address.Management}
	for name, c := range map[string]struct {
		at      address.Address
		request []byte
		want    string // "" = refused
		oneOf   sas.Rights
	}{
		"one":                         {queue, asks(amqp.Pair{Key: "a", Value: int32(1)}, amqp.Pair{Key: "operation", Value: peek}), peek, sas.Listen},
		"a send":                      {queue, asks(amqp.Pair{Key: "operation", Value: schedule}), schedule, sas.Send},
		"a send to dead letters":      {dead, asks(amqp.Pair{Key: "operation", Value: schedule}), "", 0},
		"a peek at dead letters":      {dead, asks(amqp.Pair{Key: "operation", Value: peek}), peek, sas.Listen},
		"one, as a symbol":            {queue, asks(amqp.Pair{Key: "operation", Value: amqp.Symbol(peek)}), "", 0},
		"two":                         {queue, asks(amqp.Pair{Key: "operation", Value: schedule}, amqp.Pair{Key: "operation", Value: peek}), "", 0},
		"two alike":                   {queue, asks(amqp.Pair{Key: "operation", Value: peek}, amqp.Pair{Key: "operation", Value: peek}), "", 0},
		"two, one's name is a symbol": {queue, asks(amqp.Pair{Key: "operation", Value: schedule}, amqp.Pair{Key: amqp.Symbol("operation"), Value: peek}), "", 0},
		"another property twice":      {queue, asks(amqp.Pair{Key: "operation", Value: peek}, amqp.Pair{Key: "a", Value: "b"}, amqp.Pair{Key: "a", Value: "b"}), "", 0},
		"not known":                   {queue, asks(amqp.Pair{Key: "operation", Value: "com.microsoft:purge"}), "", 0},
		"in capitals":                 {queue, asks(amqp.Pair{Key: "operation", Value: "COM.MICROSOFT:PEEK-MESSAGE"}), "", 0},
		"no text":                     {queue, asks(amqp.Pair{Key: "operation", Value: int32(1)}), "", 0},
		"none":                        {queue, asks(amqp.Pair{Key: "a", Value: "b"}), "", 0},
		"nothing":                     {queue, nil, "", 0},
		"garbage":                     {queue, []byte{0, 0x53, 0x74, 0xc1, 9, 2}, "", 0},
	} {
		got, oneOf, refused := rights.Operation(c.at, c.request)
		if got != c.want || oneOf != c.oneOf || (refused == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, %v; want %q, %v", name, got, oneOf, refused, c.want, c.oneOf)
		}
	}
}
