// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/httpclient"
	grammar "overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// kind says which values a setting takes.
type kind int

// The kinds of values.
const (
	kindString    kind = iota // anything
	kindFile                  // a file or a directory; in the file of settings, relative to that
	kindEntity                // the path of a queue, as Service Bus allows them
	kindAddress               // host:port on loopback
	kindEndpoint              // host:port; what is not on loopback needs TLS and keys
	kindEndpoints             // several of them, separated by commas
	kindStrings               // several, separated by commas
	kindMailboxes             // several of mail, separated by commas
	kindURL                   // http or https, with a host
	kindDuration              // 30s or PT30S, between min and max
	kindDurations             // several of them, separated by commas
	kindSize                  // bytes, with or without a unit, between min and max
	kindCount                 // a whole number between min and max
	KindBool                  // true or false; the yes and no of old YAML are refused
	KindChoice                // one of enum
	kindList                  // elements of the keys below path + "[]."
	kindMap                   // names of the user's own, with single values
	kindTexts                 // the same, with values that are texts
)

// several reports whether a value may be written as a list.
func (k kind) several() bool {
	return k == kindEndpoints || k == kindStrings || k == kindMailboxes || k == kindDurations
}

// isMap reports whether the value is a mapping of names that are the user's own.
func (k kind) isMap() bool { return k == kindMap || k == kindTexts }

// String names the kind for docs/reference/configuration.md.
func (k kind) String() string {
	return [...]string{"string", "path", "queue name", "address", "address", "addresses", "names", "names", "URL", "duration", "durations", "size", "number", "bool", "choice", "list", "mapping", "mapping"}[k]
}

// Parse reads one value as somebody wrote it, in the file, a variable or a flag. The
// error says what is allowed; the caller adds the key and the place.
func (s *Setting) Parse(text string) (any, error) {
	switch s.Kind {
	case KindBool:
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("%s is not a bool; write true or false", s.quote(text))
		}
		return text == "true", nil
	case KindChoice:
		if !slices.Contains(s.Choices, text) {
			return nil, fmt.Errorf("%s is not one of %s", s.quote(text), strings.Join(s.Choices, ", "))
		}
		return text, nil
	case kindDuration:
		d, err := ParseDuration(text)
		if err != nil {
			return nil, err
		}
		return d, s.bounds(int64(d), func(n int64) string { return duration.Format(time.Duration(n)) })
	case kindDurations:
		return s.parseDurations(text)
	case kindSize:
		n, err := ParseSize(text)
		if err != nil {
			return nil, err
		}
		return n, s.bounds(n, FormatSize)
	case kindCount:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", Clip(text))
		}
		return n, s.bounds(n, func(n int64) string { return strconv.FormatInt(n, 10) })
	case kindAddress:
		return text, checkAddress(text)
	case kindEndpoint:
		_, err := SplitAddress(text)
		return text, err
	case kindEndpoints, kindStrings:
		return s.parseList(splitList(text))
	case kindMailboxes:
		return splitMailboxes(text), nil
	case kindEntity:
		if at, err := grammar.Name(text); err == nil && at.Subscription != "" && s.Path == "monitor.entities[].queue" {
			return nil, fmt.Errorf("%q is a subscription; write topic: %s, and each of its subscriptions is monitored", Clip(text), at.Name)
		}
		return text, CheckEntity(text)
	case kindURL:
		return text, checkURL(text)
	default:
		return text, nil
	}
}

// parseList reads several values.
func (s *Setting) parseList(values []string) (any, error) {
	for _, v := range values {
		if s.Kind == kindEndpoints {
			if _, err := SplitAddress(v); err != nil {
				return nil, err
			}
		} else if s.Choices != nil && !slices.Contains(s.Choices, v) {
			return nil, fmt.Errorf("%s is not one of %s", s.quote(v), strings.Join(s.Choices, ", "))
		}
	}
	return values, nil
}

// quote shows a value in a message, unless it is a secret.
func (s *Setting) quote(text string) string {
	if s.secret {
		return "the value"
	}
	return strconv.Quote(Clip(text))
}

// Clip keeps a message readable whatever somebody wrote.
func Clip(text string) string {
	if len(text) <= 60 {
		return text
	}
	return strings.ToValidUTF8(text[:60], "") + "…"
}

// bounds checks a number, which format shows in the error. Both bounds belong to what is
// allowed.
func (s *Setting) bounds(n int64, format func(int64) string) error {
	if s.min == 0 && s.max == 0 || n >= s.min && n <= s.max {
		return nil
	}
	if s.max == math.MaxInt64 {
		return fmt.Errorf("%s is too small; it must be at least %s", format(n), format(s.min))
	}
	return fmt.Errorf("%s is out of bounds; it must be between %s and %s", format(n), format(s.min), format(s.max))
}

// ParseDuration is duration.Parse with errors that show the text.
func ParseDuration(text string) (time.Duration, error) {
	d, err := duration.Parse(text)
	switch {
	case errors.Is(err, duration.ErrUnit):
		return 0, fmt.Errorf("%q has no unit; write %ss or PT%sS if seconds are meant", Clip(text), Clip(text), Clip(text))
	case err != nil:
		return 0, fmt.Errorf("%q is %w", Clip(text), err)
	}
	return d, nil
}

// sizeUnits is in the order of trying: "B" ends the others too.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"B", 1}, {"", 1}}

// ParseSize reads 262144, 256KiB and 1MiB.
func ParseSize(text string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size; write one like 262144, 256KiB or 1MiB", Clip(text))
}

// FormatSize writes n as somebody would have written it.
func FormatSize(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + "KiB"
	}
	return strconv.FormatInt(n, 10)
}

// splitList is the parts of text between commas, without the space around them.
func splitList(text string) []string {
	list := []string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// splitMailboxes is splitList for mail: a comma in a display name separates nothing. The name may
// have quotes around it or not.
func splitMailboxes(text string) []string {
	list, begin, quoted := []string{}, 0, false
	for i, r := range text + "," {
		switch {
		case r == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
		case r == ',' && (i == len(text) || !quoted && strings.Contains(text[begin:i], "@")):
			if part := strings.Trim(text[begin:i], ", \t"); part != "" {
				list = append(list, part)
			}
			begin = i + 1
		}
	}
	return list
}

// SplitAddress demands host:port and returns the host.
func SplitAddress(text string) (host string, err error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an address; write host:port, such as 127.0.0.1:5300", Clip(text))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", fmt.Errorf("%q has no port between 0 and 65535", Clip(text))
	}
	return host, nil
}

// OnLoopback reports whether only this machine can reach a host.
func OnLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkAddress demands host:port on loopback, of what asks nobody who they are.
func checkAddress(text string) error {
	host, err := SplitAddress(text)
	if err != nil {
		return err
	}
	if !OnLoopback(host) {
		return fmt.Errorf("%q is not on loopback; what listens there asks nobody for a key, so it has to be 127.0.0.1, [::1] or localhost", Clip(text))
	}
	return nil
}

// CheckEntity keeps to what Service Bus allows in the name of a queue, by the grammar that everything else reads
// names by.
func CheckEntity(text string) error {
	if text == "" {
		return fmt.Errorf("%q is empty; give the name of a queue", text)
	}
	if n := utf8.RuneCountInString(text); n > grammar.MaxName {
		return fmt.Errorf("%q has %d characters; a queue name has at most %d", Clip(text), n, grammar.MaxName)
	}
	at, err := grammar.Name(text)
	if err == nil && at.Subscription != "" {
		return fmt.Errorf("%q is a subscription; give a queue or topic, such as its topic %s", Clip(text), at.Name)
	}
	if err != nil {
		return fmt.Errorf("%q is not the name of a queue; use letters, digits, '.', '-', '_' and '/', and no segment that is empty or of dots", Clip(text))
	}
	return nil
}

// checkURL keeps the value out of its errors: a webhook's URL often is its password.
func checkURL(text string) error {
	_, err := httpclient.ParseURL(text)
	return orTextFault(text, err)
}

// Nearest is the candidate that somebody who wrote word most likely meant, or "".
// Upper and lower case and separators do not count; otherwise one letter in three may be wrong.
func Nearest(word string, candidates []string) string {
	// A word that is much longer than any key is no misspelling, and would cost time.
	if len(word) > 80 {
		return ""
	}
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
	}
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(plain(word), plain(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their neighbour
// to turn a into b.
func distance(a, b string) int {
	before, previous := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
