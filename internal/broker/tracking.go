// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
)

// The service ends its sentences with where to read on and with ids to find them by in its logs:
// "… . For more information please see https://aka.ms/ServiceBusExceptions . Reference:GUID,
// TrackingId:GUID_B23, SystemTracker:NAMESPACE:Queue:NAME, Timestamp:2022-08-23T12:34:58"
// (azure-functions-dotnet-worker issue 1003). Programs look for these words and cut there. What
// leaves for a client passes tracked, which adds them once.

const (
	readOn          = " For more information please see https://aka.ms/ServiceBusExceptions . "
	readOnResources = " To know more visit https://aka.ms/sbResourceMgrExceptions.  "
	noSystemTracker = "NoSystemTracker"
)

// tracked returns e as a client hears it. A sentence that ends with a space says itself where to
// read on.
func tracked(e *amqp.Error, systemTracker string) *amqp.Error {
	if e == nil || strings.Contains(e.Description, "TrackingId:") {
		return e
	}
	out := *e
	if !strings.HasSuffix(out.Description, " ") {
		out.Description += readOn + "Reference:" + newGUID() + ", "
	}
	out.Description += tracking(systemTracker)
	return &out
}

// tracked is tracked for what happens to e.
func (e *Entity) tracked(err *amqp.Error) *amqp.Error { return tracked(err, e.reference()) }

// rejected is the outcome of what is refused at e.
func (e *Entity) rejected(err *amqp.Error) *amqp.Rejected {
	return &amqp.Rejected{Error: e.tracked(err)}
}

// tracked is tracked for what happens at path, whatever is there.
func (es *entities) tracked(err *amqp.Error, path string) *amqp.Error {
	switch e := es.find(path); {
	case err == nil:
		return nil
	case e != nil:
		return e.tracked(err)
	case path != "":
		return tracked(err, es.ns.host.name()+":"+path)
	}
	return tracked(err, noSystemTracker)
}

// tracking is the ids.
func tracking(systemTracker string) string {
	return fmt.Sprintf("TrackingId:%s_G0, SystemTracker:%.300s, Timestamp:%s",
		newGUID(), systemTracker, time.Now().UTC().Format("2006-01-02T15:04:05"))
}

func newGUID() string {
	var id amqp.UUID
	_, _ = rand.Read(id[:]) // it cannot fail, says its documentation
	return id.String()
}

// host is the host that clients have opened last to reach a namespace.
type host struct{ last atomic.Pointer[string] }

// name is the host without the port, which is no part of a namespace's name.
func (h *host) name() string {
	if last := h.last.Load(); last != nil {
		if name, _, err := net.SplitHostPort(*last); err == nil {
			return name
		}
		return cmp.Or(*last, "localhost")
	}
	return "localhost"
}

// url is how the service names what is at path, or would be.
func (h *host) url(path string) string { return "sb://" + h.name() + "/" + path }

// reference is how the service names an entity inside: NAMESPACE:Queue:q, NAMESPACE:Topic:t,
// NAMESPACE:Topic:t|s.
func (e *Entity) reference() string {
	label, _, _ := strings.Cut(e.ns.host.name(), ".")
	label = cmp.Or(e.ns.name, label)
	switch e.kind {
	case KindSubscription:
		return label + ":Topic:" + e.topic.path + "|" + e.settings.Load().subscription.Name
	case KindTopic:
		return label + ":Topic:" + e.path
	}
	return label + ":Queue:" + e.path
}

// refusal is refusalOf for an error of the entity's queue.
func (e *Entity) refusal(err error) *amqp.Error {
	if !errors.Is(err, queue.ErrFull) {
		return refusalOf(err)
	}
	kind := "Queue"
	if e.kind != KindQueue {
		kind = "Topic"
	}
	// As in Azure/azure-service-bus issue 683.
	return amqp.Errorf(amqp.ErrCondResourceLimitExceeded,
		"The maximum entity size has been reached or exceeded for %s: '%.300s'. Size of entity in bytes:%d, Max entity size in bytes: %d.%s QuotaType: EntitySize Reference:%s, ",
		kind, e.reference(), e.quota.Used(), e.quota.Limit(), readOn, newGUID())
}

// errDisabled refuses to send to e, or to receive from it.
func (e *Entity) errDisabled() *amqp.Error {
	if e.common().status == SendDisabled {
		return amqp.Errorf(condEntityDisabled, "Messaging entity '%.300s' is currently disabled for Send operations.", e.reference())
	}
	return amqp.Errorf(condEntityDisabled, "Messaging entity '%.300s' is currently disabled.", e.ns.host.url(e.path))
}

// errForced is how the service parts with a link (azure-sdk-for-js issue 22963); clients connect
// again. Of a link to send on only the first words are known.
func errForced(l detacher) *amqp.Error {
	text := "The link is force detached."
	switch l := l.(type) {
	case *server.SourceLink:
		id := l.Conn().ID()
		text = fmt.Sprintf("The link 'G0:%d:%.300s' is force detached. Code: consumer(link%d). Details: InnerMessageReceiver was closed.", id, l.Name(), id)
	case *server.SinkLink:
		text = fmt.Sprintf("The link 'G0:%d:%.300s' is force detached.", l.Conn().ID(), l.Name())
	}
	return &amqp.Error{Condition: amqp.ErrCondLinkDetachForced, Description: text}
}
