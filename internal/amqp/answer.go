// SPDX-License-Identifier: Apache-2.0

package amqp

// An Answer is the response of a management node or $cbs. The protocol is a draft of OASIS, AMQP
// Management (section 3), in the form that Service Bus gives it.
type Answer struct {
	To            string // the reply-to of the request, "" = none
	CorrelationID Raw    // the message-id of the request, as its sender encoded it; nil = null
	Status        int32  // as in HTTP
	Description   string
	Condition     Symbol // of a failure, "" = none
	Body          Raw    // nil = null
}

// Append appends the answer's message. Status and description stand under both spellings: Go reads
// either, .NET status-code on $cbs and statusCode on $management and nothing else.
func (a Answer) Append(dst []byte) []byte {
	dst = AppendDescriptor(dst, CodeProperties)
	dst, list := BeginList(dst)
	dst = AppendNull(dst) // message-id
	dst = AppendNull(dst) // user-id
	if a.To != "" {
		dst = AppendString(dst, a.To)
	} else {
		dst = AppendNull(dst)
	}
	dst = AppendNull(dst) // subject
	dst = AppendNull(dst) // reply-to
	dst = AppendRaw(dst, a.CorrelationID)
	for range propertyFields - 6 {
		dst = AppendNull(dst)
	}
	dst = EndList(dst, list, propertyFields)

	dst = AppendDescriptor(dst, CodeApplicationProperties)
	dst, props := BeginMap(dst)
	pairs := 4
	for _, name := range [...]string{"statusCode", "status-code"} {
		dst = AppendString(dst, name)
		dst = AppendInt(dst, a.Status)
	}
	for _, name := range [...]string{"statusDescription", "status-description"} {
		dst = AppendString(dst, name)
		dst = AppendString(dst, a.Description)
	}
	if a.Condition != "" {
		for _, name := range [...]string{"errorCondition", "error-condition"} {
			dst = AppendString(dst, name)
			dst = AppendSymbol(dst, a.Condition)
		}
		pairs += 2
	}
	dst = EndMap(dst, props, pairs)
	return AppendValueSection(dst, a.Body)
}

// ReadAnswer reads an answer, in either spelling. It shares its memory with m. Status is 0 if m
// states none.
func ReadAnswer(m *Message) (a Answer) {
	either := func(hyphened, camel string) (Reader, bool) {
		r, ok := MapLookup(m.ApplicationProperties, hyphened)
		if !ok {
			r, ok = MapLookup(m.ApplicationProperties, camel)
		}
		return r, ok
	}
	if r, ok := ListField(m.Properties, PropertyCorrelationID); ok {
		a.CorrelationID = r.Raw()
	}
	if r, ok := either("status-code", "statusCode"); ok {
		a.Status = int32(min(max(r.Integer(), 0), 999))
	}
	if r, ok := either("status-description", "statusDescription"); ok {
		a.Description = r.String()
	}
	if r, ok := either("error-condition", "errorCondition"); ok {
		a.Condition = Symbol(r.StringBytes())
	}
	if r, ok := m.Value(); ok {
		a.Body = r.Rest()
	}
	return a
}
