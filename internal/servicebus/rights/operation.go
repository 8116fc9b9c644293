// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

// The operations of a management node that somebody has to know by name.
const (
	ScheduleMessage = "com.microsoft:schedule-message"
	PeekMessage     = "com.microsoft:peek-message"
)

// operations is the table: which right each operation of a management node needs. One that is not
// here is refused and not carried on, whatever rights its client has: it could be a new way to
// send, which nobody would watch.
var operations = map[string]sas.Rights{
	ScheduleMessage:                          sas.Send,
	"com.microsoft:cancel-scheduled-message": sas.Send,

	PeekMessage:                                sas.Listen,
	"com.microsoft:batch-delete-messages":      sas.Listen,
	"com.microsoft:receive-by-sequence-number": sas.Listen,
	"com.microsoft:renew-lock":                 sas.Listen,
	"com.microsoft:update-disposition":         sas.Listen,

	"com.microsoft:get-message-sessions": sas.Listen,
	"com.microsoft:get-session-state":    sas.Listen,
	"com.microsoft:renew-session-lock":   sas.Listen,
	"com.microsoft:set-session-state":    sas.Listen,

	"com.microsoft:add-rule":        sas.Listen | sas.Manage,
	"com.microsoft:enumerate-rules": sas.Listen | sas.Manage,
	"com.microsoft:remove-rule":     sas.Listen | sas.Manage,
}

// ForOperation says which rights an operation needs, each alone, and whether there is one of that
// name.
func ForOperation(name string) (oneOf sas.Rights, ok bool) {
	oneOf, ok = operations[name]
	return oneOf, ok
}

// Operation reads which operation a request to the management node at an address asks for and which
// rights that needs, each alone. refusal is the error of a request that cannot be read, or can be
// read in two ways because a map of it repeats a key. It is also the error of an unknown operation,
// and of one that would send to a node that takes no messages.
func Operation(at address.Address, request []byte) (name string, oneOf sas.Rights, refusal *amqp.Error) {
	m, err := amqp.ParseMessage(request)
	if err != nil {
		return "", 0, amqp.Errorf(amqp.ErrCondDecodeError, "The request cannot be read: %v.", err)
	}
	if refusal := AmbiguousRequest(&m); refusal != nil {
		return "", 0, refusal
	}
	if r, ok := amqp.MapLookup(m.ApplicationProperties, "operation"); ok {
		if name = r.String(); r.Err() != nil {
			name = ""
		}
	}
	oneOf, known := operations[name]
	switch {
	case name == "":
		return "", 0, amqp.Errorf(condArgumentError, "The request names no operation.")
	case !known:
		return "", 0, amqp.Errorf(amqp.ErrCondNotImplemented, "The operation '%.128s' is not supported.", name)
	case oneOf == sas.Send && (at.SubQueue != address.Main || at.Subscription != ""):
		return "", 0, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to '%s'.", at.Entity())
	}
	return name, oneOf, nil
}

// AmbiguousRequest refuses a request that states a key twice, in its properties or anywhere in its
// body, nil when it does not.
func AmbiguousRequest(m *amqp.Message) *amqp.Error {
	if refusal := Ambiguous(m); refusal != nil {
		return refusal
	}
	if r, ok := m.Value(); ok {
		if key, repeated := amqp.RepeatedKeyWithin(r.Raw()); repeated {
			return stated("body of the request", key)
		}
	}
	return nil
}

// condArgumentError is how Service Bus refuses a request for what it says.
const condArgumentError amqp.Symbol = "com.microsoft:argument-error"

// Ambiguous refuses a message that states a property or an annotation twice, nil when it does not.
// It allocates nothing for a message of a client in its right mind.
func Ambiguous(m *amqp.Message) *amqp.Error {
	if key, repeated := amqp.RepeatedKey(m.ApplicationProperties); repeated {
		return stated("application properties", key)
	}
	if key, repeated := amqp.RepeatedKey(m.MessageAnnotations); repeated {
		return stated("message annotations", key)
	}
	if key, repeated := amqp.RepeatedKey(m.DeliveryAnnotations); repeated {
		return stated("delivery annotations", key)
	}
	return nil
}

func stated(where string, key []byte) *amqp.Error {
	return amqp.Errorf(condArgumentError, "The %s state %.100q more than once.", where, key)
}
