// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestActionsSetAndRemove(t *testing.T) {
	for text, want := range map[string]string{ // a condition for afterwards
		"SET color = 'blue'":                              "color = 'blue'",
		"SET Color = 'blue';":                             "color = 'blue'",
		"set user.size = 5":                               "size = 5",
		"SET size = quantity * price":                     "size = 25",
		"SET [a b] = 'x'; SET q = [a b] + '!'":            "q = 'x!'",
		"SET a = 1 SET b = 2 REMOVE color":                "a = 1 AND b = 2 AND NOT EXISTS(color)",
		"SET a = 1, SET b = a + 1":                        "b = 2",
		"REMOVE missing":                                  "NOT EXISTS(missing)",
		"REMOVE COLOR":                                    "color IS NULL",
		"SET a = missing":                                 "a IS NULL AND EXISTS(a)",
		"SET a = NULL":                                    "a IS NULL AND EXISTS(a)",
		strings.Repeat("REMOVE color;", 32):               "color IS NULL",
		"SET color = missing + 1":                         "color IS NULL",
		"SET quantity = '12'":                             "quantity = 12",   // a number stays one
		"SET quantity = 12.5":                             "quantity = 12",   // rounded to even
		"SET quantity = 'x'":                              "quantity = 'x'",  // where it can
		"SET price = 3":                                   "price / 2 = 1.5", // a fraction stays possible
		"SET net = 3":                                     "'' + net = '3' AND '' + net / 2 = '1.5'",
		"SET net = '7.10'":                                "'' + net = '7.10'",
		"SET quantity = net":                              "quantity = 12",
		"SET price = net":                                 "price = 12.5 AND '' + price / 2 = '6.25'",
		"SET a = net + 1":                                 "'' + a = '13.50'",
		"SET color = 5":                                   "color = '5'",
		"SET urgent = 'false'":                            "urgent = FALSE",
		"SET nothing = 5":                                 "nothing = 5",
		"SET due = '2026-03-01T12:00:00Z'":                "due = sys.EnqueuedTimeUtc",
		"SET wait = '1.02:03:04.5'":                       "wait = @span",
		"SET id = '01020304-0506-0708-090a-0b0c0d0e0f11'": "id <> @id AND id = id",
		"SET a = newid()":                                 "a <> newid() AND a = a",
		"SET sys.Label = 'x'; SET sys.To = 5":             "sys.Label = 'x' AND sys.To = '5'",
		"SET sys.MessageId = newid()":                     "sys.MessageId LIKE '________-____-4%'",
		"REMOVE sys.Label":                                "sys.Label IS NULL",
		"SET sys.TimeToLive = '00:01:00'":                 "sys.TimeToLive = wait",
		"SET sys.ScheduledEnqueueTimeUtc = due":           "sys.ScheduledEnqueueTimeUtc = due",
		"SET sys.CorrelationId = @v SET a = @V":           "sys.CorrelationId = '7' AND a = 7",
		"SET set1 = (1 + 2) * 3 ; REMOVE [set]":           "set1 = 9 AND [set] IS NULL",
	} {
		params := map[string]Value{
			"@v": IntValue(7), "@id": GUIDValue(id), "@span": DurationValue(26*time.Hour + 3*time.Minute + 4500*time.Millisecond),
		}
		a, err := ParseAction(text, params)
		if err != nil {
			t.Errorf("ParseAction(%s) = %v", text, err)
			continue
		}
		again, err := ParseAction(a.String(), params)
		if err != nil || again.String() != a.String() {
			t.Errorf("%s is printed as %s, which is read as %v, %v", text, a, again, err)
			continue
		}
		m := scene()
		if err := again.Apply(m); err != nil {
			t.Errorf("Apply(%s) = %v", text, err)
		}
		f, err := ParseFilter(want, params)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := f.Match(m); !ok || err != nil {
			t.Errorf("after %s the condition %s is %v, %v; want true", text, want, ok, err)
		}
	}
}

func TestActionsThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "at character 1: expected SET or REMOVE, found the end",
		"color = 5":                    "at character 1: expected SET or REMOVE, found color",
		"SET color":                    "at character 10: expected =, found the end",
		"SET color = ":                 "at character 13: expected a property or a constant, found the end",
		"SET color = 1 = 1":            "at character 15: expected SET or REMOVE, found =",
		"SET color = (a = 1)":          "at character 16: expected ), found =",
		"SET color = 1;;":              "at character 15: expected SET or REMOVE, found ;",
		"SET set = 1":                  "at character 5: expected a property or a constant; in brackets a keyword can be the name of one, found set",
		"SET sys.EnqueuedTimeUtc = 1":  "at character 5: expected a property that can be changed, found sys",
		"SET p('x') = 1":               "at character 5: expected a property that can be changed, found p",
		strings.Repeat("SET a=1 ", 33): "at character 257: expected at most 32 statements, found SET",
		"REMOVE sys.Foo":               "at character 12: expected a system property, such as MessageId, CorrelationId, Label, To, ReplyTo, SessionId or ContentType, found Foo",
		"REMOVE 'a'":                   "at character 8: expected a property or a constant, found 'a'",
	} {
		if _, err := ParseAction(text, nil); err == nil || err.Error() != want {
			t.Errorf("ParseAction(%s)\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestActionsFail(t *testing.T) {
	for text, want := range map[string]string{
		"SET a = 1 / 0":                    "an integer is divided by zero",
		"SET a = net / 0":                  "12.50 / 0: division by zero",
		"SET a = net % (net - net)":        "12.50 % 0.00: invalid operation",
		"SET a = huge + 1":                 "1E+6000 + 1: overflow",
		"SET a = net + due":                "the operator + does not apply to decimal and date",
		"SET sys.TimeToLive = 'soon'":      "sys.TimeToLive cannot be set to string",
		"SET sys.Label = [blob]":           "sys.Label cannot be set to opaque value",
		"SET sys.ScheduledEnqueueTime = 5": "sys.ScheduledEnqueueTimeUtc cannot be set to integer",
	} {
		a, err := ParseAction(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		evalErr := (*EvalError)(nil)
		if err := a.Apply(scene()); !errors.As(err, &evalErr) || err.Error() != want {
			t.Errorf("Apply(%s) = %v, want the EvalError %q", text, err, want)
		}
	}
	a, err := ParseAction("SET sys.SessionId = 'x'", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Apply(scene()); err == nil || err.Error() != "not today" {
		t.Errorf("Apply = %v, want the error of the message", err)
	}
}
