// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Each condition in its group has the truth of the group for scene().
var conditions = []struct {
	name  string
	want  truth
	texts []string
}{
	{"true", isTrue, []string{
		"1=1", "1 = 1.0", "color = 'red'", "COLOR='red'", "user.color = 'red'", "USER.Color = 'red'", "[color] = 'red'", `"color" = 'red'`,
		"color <> 'blue'", "color != 'blue'", "color > 'blue'", "color <= 'red'",
		"sys.MessageId = 'm-1'", "SYS.messageid = 'm-1'", "sys.Subject = sys.Label", "sys.DeliveryCount = 0",
		"[HR-Employee ID] = 'x'", "[a]]b] = 1", "Größe = 5", "set = 3", "p = 'pea'", "P('color') = 'red'", "property('sys.Label') = 'bus stop'",
		"property(quantity) = 10", "property('user.quantity') = 10", "property('co' + 'lor') = 'red'",
		"quantity = 10", "quantity >= 10 AND quantity <= 10.0", "quantity * price = 25", "quantity / 4 = 2", "quantity / 4.0 = 2.5",
		"quantity % 4 = 2", "price % 2 = 0.5", "quantity + 5 * 2 = 20", "(quantity + 5) * 2 = 30", "10 - 4 - 3 = 3", "2 * 3 % 4 = 2",
		"-quantity = -10", "+quantity = 10", "- -quantity = 10", "big > 9223372036854775807", "big = big", "big >= 1", "1 < big", "big > 1.5",
		"-9223372036854775808 < 0", "9223372036854775807 + 1 < 0", "1E3 = 1000", "101.5E5 > 0.5E-2", "-9223372036854775808 / -1 < 0",
		"0.0 / 0 <> 0.0 / 0", "1 / 0.0 > 1E308",
		"net > 10", "net = 12.5", "10 < net", "net < big", "net = @net", "net IN (1, 12.5)", "net + 1 = 13.5", "net * 2 = quantity * price",
		"'' + net * 2 = '25.00'", "'' + net / 2 = '6.25'", "'' + 1000 / (net / net) = '1000'", "'' + @net / 3 = '4.1666666666666666666666666667'",
		"'' + @net / 15 * 10 = '8.333333333333333333333333333'", "'' + net / 15 = '0.8333333333333333333333333333'",
		"net % 5 = 2.5", "-net < 0", "10 - net = -2.5", "tiny > 0", "tiny / 10 = 0", "huge > big", "huge > 1E308", "NOT net > 12.5",
		"'a' + 'b' = 'ab'", "color + 1 = 'red1'", "1 + color = '1red'", "color + urgent = 'redTrue'", "color + 1.5 = 'red1.5'",
		"'' + id = '01020304-0506-0708-090a-0b0c0d0e0f10'", "'it''s' LIKE 'it''s'", "'' + wait = '00:01:00'", "'' + due = '2026-03-01T13:00:00Z'",
		"urgent", "urgent = TRUE", "NOT urgent = false", "TRUE", "urgent AND TRUE", "NOT FALSE", "@yes", "urgent <> @no",
		"id = id", "newid() <> newid()", "due > sys.EnqueuedTimeUtc", "due - sys.EnqueuedTimeUtc > wait", "due - wait < due",
		"sys.EnqueuedTimeUtc = @sent", "wait < @hour", "sys.TimeToLive > wait", "wait + wait = @two", "-wait < wait",
		"color IN ('blue', 'red')", "color NOT IN ('blue')", "quantity IN (1, 10.0)", "color IN (1, 'red')",
		"missing IS NULL", "nothing IS NULL", "sys.To IS NULL", "color IS NOT NULL", "sys.Label IS NOT NULL", "p('none') IS NULL",
		"EXISTS(color)", "EXISTS(nothing)", "EXISTS ( user.color )", "exists([HR-Employee ID])", "EXISTS(sys.Label)", "NOT EXISTS(missing)",
		"NOT EXISTS(sys.To)", "EXISTS(p('color'))", "blob IS NOT NULL",
		"color LIKE 'r%'", "color LIKE '%d'", "color LIKE '%e%'", "color LIKE 'r_d'", "color LIKE '___'", "color LIKE '%_e_%'", "color LIKE 'red'",
		"color NOT LIKE 'R%'", "color LIKE 'r' + '%'", "tag LIKE ''", "tag LIKE '%'", "tag LIKE '%%'", "many LIKE 'ñ_nd_%x'", "many LIKE '%ú__'",
		`path LIKE '100\%\_[a]\\' ESCAPE '\'`, "path LIKE '100!%!_%' ESCAPE '!'",
		"path LIKE @pattern ESCAPE @escape", "sys.Label like '%bus%'",
		"NOT color = 'blue' AND quantity = 10", "color = 'x' OR color = 'red' AND urgent = TRUE", "(color = 'x' OR color = 'red') AND (urgent)",
		"NOT (color = 'x' AND 1 / 0 = 1)", "color = 'red' OR 1 / 0 = 1", "color = 'red' OR missing = 1", "(((1))) = ((1))",
	}},
	{"false", isFalse, []string{
		"net < 10", "net <> 12.5", "net IN (12, 13)",
		"1=0", "color = 'RED'", "color <> 'red'", "color < 'blue'", "quantity > 10", "NOT 1=1", "urgent = FALSE", "FALSE", "NOT urgent",
		"color IN ('blue')", "color NOT IN ('red')", "color IS NULL", "missing IS NOT NULL", "EXISTS(missing)",
		"color LIKE 'r'", "color LIKE '%x%'", "color LIKE '____'", "color LIKE '__'", "color NOT LIKE '%'", "tag LIKE '_'", "color LIKE 'r_d_%'",
		"color LIKE '%d_'", "color LIKE 'red%red'", "color = 'red' AND 1 = 2", "1 = 2 AND missing = 1", "missing = 1 AND 1 = 2",
		"0.0 / 0 = 0.0 / 0", "big < 5", "newid() = id",
	}},
	{"unknown", unknown, []string{
		"net = '12.50'", "net = TRUE", "net LIKE '12%'",
		"missing = 1", "missing <> 1", "NOT missing = 1", "missing = missing", "nothing = NULL", "nothing = nothing", "NULL = NULL",
		"missing + 1 = 1", "-missing = 1", "missing LIKE '%'", "missing NOT LIKE '%'", "color LIKE missing", "color LIKE 'a' ESCAPE missing",
		"missing IN (1)", "missing NOT IN (1)", "color IN ('x', missing)", "color NOT IN ('x', missing)", "missing", "quantity", "NOT color",
		"color = 1", "color <> 1", "quantity = '10'", "urgent = 'true'", "urgent > FALSE", "id > id", "due = '2026-03-01'", "wait = due",
		"id = '01020304-0506-0708-090a-0b0c0d0e0f10'", "blob = blob", "sys.To = 'x'", "sys.To <> 'x'", "quantity LIKE '1%'", "color NOT IN (1)",
		"missing = 1 OR color = 'blue'", "missing = 1 AND color = 'red'", "missing = 1 AND missing = 2", "p(missing) = 1", "NULL IN (1)",
	}},
}

var params = map[string]Value{
	"@yes": BoolValue(true), "no": BoolValue(false), "@SENT": TimeValue(sent), "@hour": DurationValue(time.Hour),
	"@two": DurationValue(2 * time.Minute), "@pattern": StringValue(`100\%%`), "@escape": StringValue(`\`), "@net": number("12.50"),
}

func TestConditionsAreTrueFalseOrUnknown(t *testing.T) {
	m := scene()
	for _, group := range conditions {
		for _, text := range group.texts {
			f, err := ParseFilter(text, params)
			if err != nil {
				t.Errorf("ParseFilter(%s) = %v", text, err)
				continue
			}
			if got, err := f.root.test(m); got != group.want || err != nil {
				t.Errorf("%s is %v, %v; want %s", text, got, err, group.name)
			}
			if got, err := f.Match(m); got != (group.want == isTrue) || err != nil {
				t.Errorf("Match(%s) = %v, %v; want %v", text, got, err, group.want == isTrue)
			}
			again, err := parseFilter(f.String(), params, 10*MaxLength)
			if err != nil || again.String() != f.String() {
				t.Errorf("%s is printed as %s, which is read as %v, %v", text, f, again, err)
			} else if got, _ := again.root.test(m); got != group.want {
				t.Errorf("%s is printed as %s, which is %v, want %s", text, f, got, group.name)
			}
		}
	}
}

func TestSyntaxErrorsSayWhereAndWhat(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "at character 1: expected a property or a constant, found the end",
		"color":                   "",
		"color =":                 "at character 8: expected a property or a constant, found the end",
		"color = 'red":            "at character 9: expected a closing ', found 'red",
		"color == 'red'":          "at character 8: expected a property or a constant, found =",
		"größe = 1 und 1":         "at character 11: expected an operator or the end, found und",
		"color = 'red')":          "at character 14: expected an operator or the end, found )",
		"(color = 'red'":          "at character 15: expected ), found the end",
		"1":                       "at character 2: expected a comparison, found the end",
		"'x' OR 1=1":              "at character 5: expected a comparison, found OR",
		"a + b":                   "at character 6: expected a comparison, found the end",
		"NOT 'x'":                 "at character 8: expected a comparison, found the end",
		"(a = 1) = TRUE":          "at character 9: expected AND, OR or the end behind a predicate, found =",
		"a = (b = 1)":             "at character 12: expected AND, OR or the end behind a predicate, found the end",
		"sys.Foo = 1":             "at character 5: expected a system property, such as MessageId, CorrelationId, Label, To, ReplyTo, SessionId or ContentType, found Foo",
		"msg.Foo = 1":             "at character 1: expected the scope sys or user; in brackets a name can hold a point, found msg",
		"user. = 1":               "at character 7: expected the name of a property, found =",
		"a LIKE 5":                "at character 8: expected a pattern, found the pattern of LIKE is integer, not a string",
		"a LIKE 'x' ESCAPE 'ab'":  "at character 8: expected a pattern, found the escape of LIKE is no single character",
		"a LIKE 'x!' ESCAPE '!'":  "at character 8: expected a pattern, found the pattern of LIKE ends with its escape character",
		"a NOT NULL":              "at character 7: expected IN or LIKE, found NULL",
		"a IS 5":                  "at character 6: expected NULL, found 5",
		"'a' IS NULL":             "at character 5: expected a property before IS, found IS",
		"EXISTS(1)":               "at character 8: expected a property or a constant, found 1",
		"EXISTS color":            "at character 8: expected (, found color",
		"a IN ()":                 "at character 7: expected a property or a constant, found )",
		"a IN ('x'":               "at character 10: expected ), found the end",
		"like = 1":                "at character 1: expected a property or a constant; in brackets a keyword can be the name of one, found like",
		"lower(a) = 'x'":          "at character 1: expected one of the functions newid, property and p, found lower",
		"newid(1) = 1":            "at character 7: expected ), found 1",
		"a = @b":                  "at character 5: expected a parameter that has a value, found @b",
		"a = @":                   "at character 5: expected the name of a parameter behind @, found @",
		"a = 9223372036854775808": "at character 5: expected a number of 64 bits, found 9223372036854775808",
		"a = 1E999":               "at character 5: expected a number of 64 bits, found 1E999",
		"a = 1.":                  "at character 5: expected a digit behind the point, found 1.",
		"a = 1E":                  "at character 5: expected an exponent behind E, found 1E",
		"a = 1x":                  "at character 5: expected a number, found 1x",
		"a = #":                   "at character 5: expected a property, a constant or an operator, found #",
		"a ! b":                   "at character 3: expected !=, found !",
		"[] = 1":                  "at character 1: expected a name between the marks, found []",
		"[a = 1":                  "at character 1: expected a closing ], found [a = 1",
		"a = \xff":                "at character 1: expected UTF-8, found other bytes",
		"a = '" + strings.Repeat("é", MaxLength-6) + "'":                        "",
		"a = '" + strings.Repeat("é", MaxLength-5) + "'":                        "at character 1025: expected at most 1024 characters, found 1025",
		strings.Repeat("(", MaxDepth) + "a" + strings.Repeat(")", MaxDepth):     "",
		strings.Repeat("(", MaxDepth+1) + "a" + strings.Repeat(")", MaxDepth+1): "at character 66: expected at most 64 levels of nesting, found a",
		strings.Repeat("NOT ", 65) + "a":                                        "at character 261: expected at most 64 levels of nesting, found a",
		"1 = " + strings.Repeat("-", 65) + "a":                                  "at character 70: expected at most 64 levels of nesting, found a",
	} {
		_, err := ParseFilter(text, nil)
		switch syntax := (*SyntaxError)(nil); {
		case want == "" && err != nil:
			t.Errorf("ParseFilter(%s) = %v, want nil", text, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("ParseFilter(%s)\n got %v\nwant %s", text, err, want)
		case want != "" && !errors.As(err, &syntax):
			t.Errorf("ParseFilter(%s) = %T, want a SyntaxError", text, err)
		}
	}
}

func TestFiltersFailOnWhatHasNoValue(t *testing.T) {
	m := scene()
	for text, want := range map[string]string{
		"quantity / 0 = 1":                  "an integer is divided by zero",
		"NOT quantity % 0 = 1":              "an integer is divided by zero",
		"color - 1 = 1":                     "the operator - does not apply to string and integer",
		"urgent + urgent = 1":               "the operator + does not apply to boolean and boolean",
		"-color = 1":                        "a sign does not apply to string",
		"+color = 1":                        "a sign does not apply to string",
		"color + blob = 'x'":                "the operator + does not apply to string and opaque value",
		"color LIKE quantity":               "the pattern of LIKE is integer, not a string",
		"color LIKE 'a' ESCAPE sys.Label":   "the escape of LIKE is no single character",
		"color LIKE color + '!' ESCAPE '!'": "the pattern of LIKE ends with its escape character",
		"p(1 + quantity) = 1":               "property() takes a string, not integer",
		"p('sys.' + color) = 1":             `there is no system property "red"`,
		"1 / 0 IN (1)":                      "an integer is divided by zero",
		"quantity IN (2, 1 / 0)":            "an integer is divided by zero",
		"p(1 / 0 + '') IS NULL":             "an integer is divided by zero",
		"1 = 1 / 0":                         "an integer is divided by zero",
		"missing = 1 OR 1 / 0 = 1":          "an integer is divided by zero",
	} {
		f, err := ParseFilter(text, nil)
		if err != nil {
			t.Errorf("ParseFilter(%s) = %v", text, err)
			continue
		}
		got, err := f.Match(m)
		evalErr := (*EvalError)(nil)
		if got || !errors.As(err, &evalErr) || err.Error() != want {
			t.Errorf("Match(%s) = %v, %v; want the EvalError %q", text, got, err, want)
		}
	}
}

func TestStringsDoNotGrowWithoutBound(t *testing.T) {
	m := scene()
	m.user["color"] = StringValue(strings.Repeat("x", maxText/2))
	for text, want := range map[string]bool{"color + color <> ''": true, "color + color + 'x' <> ''": false} {
		f, err := ParseFilter(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Match(m); got != want || (err == nil) != want {
			t.Errorf("Match(%s) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	m := scene()
	f, err := ParseFilter("color LIKE 'r_%' AND quantity * 2 >= 20 AND (sys.Label IN ('a', 'bus stop') OR missing IS NOT NULL)", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		if ok, err := f.Match(m); !ok || err != nil {
			t.Errorf("Match = %v, %v; want true", ok, err)
		}
	}); got != 0 {
		t.Errorf("Match allocates %v times, want 0", got)
	}
}

func BenchmarkMatch(b *testing.B) {
	m := scene()
	for _, text := range []string{"color = 'red'", "sys.Label LIKE '%stop' AND quantity > 5", "color IN ('a', 'b', 'c', 'd', 'red')", "color LIKE '%_e_%'"} {
		f, err := ParseFilter(text, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ok, _ := f.Match(m); !ok {
					b.Fatal("no match")
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := ParseFilter("sys.Label LIKE '%stop' AND (quantity > 5 OR color IN ('red', 'green'))", nil); err != nil {
			b.Fatal(err)
		}
	}
}
