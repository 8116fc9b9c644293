// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/address"
)

// The bounds of what is shown of a dead letter.
const (
	maxProperties = 100
	maxValue      = 1 << 10  // bytes of a property
	maxBody       = 16 << 10 // bytes of a body that is text
	maxBinary     = 1 << 10  // bytes of another body
)

// A letterView is one dead letter whole.
type letterView struct {
	page
	Entity           string
	Back, BackTo     string // link to the list, and what that is
	Message          string // link to the timeline; "" = there is none
	Resubmit, Purge  string // links to the previews; "" = this dashboard only reads
	IsDead           bool
	Act              *letterActions // nil = there are none here
	Fields           []field
	Properties       []field
	MoreProperties   int
	Body             string
	BodyNote         string
	Whole            string // what shows all of a long body
	HasBody, IsThere bool
}

type field struct{ Name, Value string }

// deadLetter shows one dead letter.
func (m *messagePages) deadLetter(w http.ResponseWriter, r *http.Request) {
	v := &letterView{page: m.page("deadletters", "Dead letter"), Entity: strings.TrimSpace(parameter(r, "entity")), IsDead: true}
	err := v.read(r, m)
	if err == nil && !v.IsThere {
		err = refusal{http.StatusNotFound, "This dead letter is not there any more: it was received, resubmitted or purged."}
	}
	show(w, "letter.html", v, err)
}

func (v *letterView) read(r *http.Request, m *messagePages) error {
	place, err := dlq.ParsePlace(v.Entity)
	if err != nil {
		return badRequest(err)
	}
	v.Back, v.BackTo = lettersLink(place), "All dead letters of "+place.String()
	number, err := number64(r, "number")
	if err != nil {
		return err
	}
	v.Title = fmt.Sprintf("Dead letter %d of %s", number, place)
	ctx, leave, err := m.enter(r.Context(), readTimeout)
	if err != nil {
		return err
	}
	defer leave()
	err = dlq.Walk(ctx, m.Deadlines.Links, place, number, func(l *dlq.Letter) bool {
		if l.Number != number {
			return false
		}
		v.fill(place, l)
		if m.Actions != nil {
			chosen := strconv.FormatInt(number, 10)
			v.Resubmit, v.Purge = previewLink(place, resubmit, "number", chosen), previewLink(place, purge, "number", chosen)
		}
		return false
	})
	return dlq.Failure(place, err)
}

// fill takes over what the page shows of l.
func (v *letterView) fill(place dlq.Place, l *dlq.Letter) {
	v.IsThere = true
	add := v.add
	if v.IsDead {
		add("Reason", cmp.Or(l.Reason, "none given"))
		add("Description", l.Description)
	}
	add("Message ID", l.MessageID)
	if l.SessionID != nil {
		add("Session ID", *l.SessionID)
	}
	if l.PartitionKey != nil {
		add("Partition key", *l.PartitionKey)
	}
	add("Enqueued (UTC)", stamp(l.EnqueuedTime))
	add("Deadline (UTC)", stamp(l.Due))
	if l.TimeToLive.Duration > 0 {
		add("Time to live", l.TimeToLive.String())
	}
	add("Delivery count", strconv.FormatUint(uint64(l.DeliveryCount), 10))
	add("Dead-lettered in", l.Source)
	add("Correlation ID", l.CorrelationID)
	add("Subject", l.Subject)
	add("Content type", l.ContentType)
	add("Reply to", l.ReplyTo)
	add("To", l.To)
	add("Body size", size(l))
	for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
		if len(v.Properties) == maxProperties {
			v.MoreProperties = len(l.Properties) - maxProperties
			break
		}
		v.Properties = append(v.Properties, field{cut(name), cut(dlq.Text(l.Properties[name]))})
	}
	v.Message = messageLink(place, address.MessageName(l.MessageID, l.Number))
	v.fillBody(l)
}

// add adds a field that has a value.
func (v *letterView) add(name, value string) {
	if value != "" {
		v.Fields = append(v.Fields, field{name, cut(value)})
	}
}

func (v *letterView) fillBody(l *dlq.Letter) {
	b := l.BodyBytes()
	v.HasBody = len(b) > 0
	isText, most := utf8.Valid(b), maxBinary
	if isText {
		most = maxBody
	}
	var indented bytes.Buffer
	if isText && len(b) <= most && json.Indent(&indented, b, "", "  ") == nil && indented.Len() <= most {
		b = indented.Bytes()
	}
	if len(b) > most {
		v.BodyNote = fmt.Sprintf("The first %d of %d bytes. `%s` has all of them.", most, len(b), cmp.Or(v.Whole, "overdue dlq show"))
		b = b[:most]
	}
	if v.Body = hex.Dump(b); isText {
		v.Body = strings.ToValidUTF8(string(b), "") // a rune may be cut
	}
}

// cut bounds a text on a page.
func cut(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return strings.ToValidUTF8(s[:maxValue], "") + "…"
}
