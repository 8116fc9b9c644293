// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
)

// testMessage is a message whose properties are maps.
type testMessage struct {
	user map[string]Value
	sys  map[SysProperty]Value
}

func (m *testMessage) key(name string) string {
	for k := range m.user {
		if strings.EqualFold(k, name) {
			return k
		}
	}
	return name
}

func (m *testMessage) User(name string) Value { return m.user[m.key(name)] }

func (m *testMessage) Sys(p SysProperty) Value {
	if v, ok := m.sys[p]; ok {
		return v
	}
	return NullValue()
}

func (m *testMessage) SetUser(name string, v Value) { m.user[m.key(name)] = v }
func (m *testMessage) RemoveUser(name string)       { delete(m.user, m.key(name)) }

func (m *testMessage) SetSys(p SysProperty, v Value) error {
	if p == SessionID {
		return fmt.Errorf("not today")
	}
	m.sys[p] = v
	return nil
}

var (
	sent = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id   = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
)

// number is a decimal.
func number(s string) Value {
	d, _, err := apd.NewFromString(s)
	if err != nil {
		panic(err)
	}
	return DecimalValue(d)
}

// scene is the message of the tests.
func scene() *testMessage {
	return &testMessage{
		user: map[string]Value{
			"color": StringValue("red"), "quantity": IntValue(10), "price": FloatValue(2.5), "big": UintValue(1 << 63),
			"urgent": BoolValue(true), "nothing": NullValue(), "id": GUIDValue(id), "due": TimeValue(sent.Add(time.Hour)),
			"blob": OpaqueValue(), "HR-Employee ID": StringValue("x"), "path": StringValue(`100%_[a]\`), "tag": StringValue(""),
			"p": StringValue("pea"), "Größe": IntValue(5), "a]b": IntValue(1), "wait": DurationValue(time.Minute),
			"set": IntValue(3), "net": number("12.50"), "tiny": number("1e-28"), "huge": number("1e6000"), "many": StringValue("ñandú\nx"),
		},
		sys: map[SysProperty]Value{
			MessageID: StringValue("m-1"), Label: StringValue("bus stop"), EnqueuedTime: TimeValue(sent),
			TimeToLive: Forever, DeliveryCount: IntValue(0),
		},
	}
}
