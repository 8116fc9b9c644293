// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/failure"
)

// property is a setting of an entity, by its name in Service Bus.
type property string

const (
	deadLettering property = "DeadLetteringOnMessageExpiration"
	timeToLive    property = "DefaultMessageTimeToLive"
	lockDuration  property = "LockDuration"
	maxDelivery   property = "MaxDeliveryCount"
	autoDelete    property = "AutoDeleteOnIdle"
	status        property = "Status"
)

// flags are the names of the properties in the Azure CLI.
var flags = map[property]string{
	deadLettering: "enable-dead-lettering-on-message-expiration", timeToLive: "default-message-time-to-live",
	lockDuration: "lock-duration", maxDelivery: "max-delivery-count", autoDelete: "auto-delete-on-idle", status: "status",
}

// never is the longest duration of Service Bus, which stands for no end.
const never = "P10675199DT2H48M5.4775807S"

// A Setting is a property of an entity and the value that it should have.
type Setting struct {
	Property property
	Value    string // as Service Bus writes it
}

// A Repair changes settings of one entity, or creates a queue. It deletes nothing.
type Repair struct {
	Entity, Subscription string
	Create               bool // the queue, which does not exist
	Set                  []Setting
}

func (r *Repair) merge(o *Repair) {
	r.Create = r.Create || o.Create
	for _, s := range o.Set {
		if !slices.ContainsFunc(r.Set, func(t Setting) bool { return t.Property == s.Property }) {
			r.Set = append(r.Set, s)
		}
	}
}

// String says what the repair does.
func (r *Repair) String() string {
	var set []string
	for _, s := range r.Set {
		value := s.Value
		if value == never {
			value = "unlimited"
		}
		set = append(set, fmt.Sprintf("%s = %s", s.Property, value))
	}
	if r.Create {
		return fmt.Sprintf("create queue %s with %s", r.Entity, strings.Join(set, ", "))
	}
	if r.Subscription != "" {
		return fmt.Sprintf("subscription %s of topic %s: set %s", r.Subscription, r.Entity, strings.Join(set, ", "))
	}
	return fmt.Sprintf("queue %s: set %s", r.Entity, strings.Join(set, ", "))
}

// change is one setting of an entity that a finding asks for.
type change struct {
	host                 string
	emulator             bool
	entity, subscription string
	property             property
	value                string
	applicable           bool // Apply may make it
}

// command says how a person makes the change.
func (c change) command() string {
	kind, name := "queue", c.entity
	if c.subscription != "" {
		kind, name = "topic subscription", c.subscription
	}
	if c.emulator {
		if c.subscription != "" {
			name = c.entity + "/" + c.subscription
		}
		return fmt.Sprintf("set %s of the %s %s to %s in the configuration of the emulator", c.property, strings.TrimPrefix(kind, "topic "), name, c.value)
	}
	command := fmt.Sprintf("az servicebus %s update %s", kind, azTarget(c.host))
	if c.subscription != "" {
		command += " --topic-name " + c.entity
	}
	return command + fmt.Sprintf(" --name %s --%s %s", name, flags[c.property], c.value)
}

// azTarget returns the arguments that name the namespace to the Azure CLI. Only the user knows the
// resource group.
func azTarget(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return "--resource-group <group> --namespace-name " + name
}

// Apply makes a repair. Settings that it does not name stay unchanged.
func Apply(ctx context.Context, client *admin.Client, r *Repair) error {
	err := apply(ctx, client, r)
	if err != nil {
		return fmt.Errorf("%s: %w", r, failure.Plain(err))
	}
	return nil
}

func apply(ctx context.Context, client *admin.Client, r *Repair) error {
	if r.Create {
		p := &admin.QueueProperties{}
		if err := setQueue(p, r.Set); err != nil {
			return err
		}
		_, err := client.CreateQueue(ctx, r.Entity, &admin.CreateQueueOptions{Properties: p})
		return err
	}
	if r.Subscription != "" {
		found, err := client.GetSubscription(ctx, r.Entity, r.Subscription, nil)
		if err != nil {
			return err
		}
		if found == nil {
			return fmt.Errorf("the subscription no longer exists")
		}
		p := found.SubscriptionProperties
		for _, s := range r.Set {
			if s.Property != deadLettering {
				return fmt.Errorf("doctor: %s of a subscription is not repairable", s.Property)
			}
			p.DeadLetteringOnMessageExpiration = to.Ptr(s.Value == "true")
		}
		_, err = client.UpdateSubscription(ctx, r.Entity, r.Subscription, p, nil)
		return err
	}
	found, err := client.GetQueue(ctx, r.Entity, nil)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("the queue no longer exists")
	}
	p := found.QueueProperties
	if err := setQueue(&p, r.Set); err != nil {
		return err
	}
	_, err = client.UpdateQueue(ctx, r.Entity, p, nil)
	return err
}

func setQueue(p *admin.QueueProperties, settings []Setting) error {
	for _, s := range settings {
		switch s.Property {
		case deadLettering:
			p.DeadLetteringOnMessageExpiration = to.Ptr(s.Value == "true")
		case timeToLive:
			p.DefaultMessageTimeToLive = to.Ptr(s.Value)
		case lockDuration:
			p.LockDuration = to.Ptr(s.Value)
		case autoDelete:
			p.AutoDeleteOnIdle = to.Ptr(s.Value)
		case maxDelivery:
			n, err := strconv.ParseInt(s.Value, 10, 32)
			if err != nil {
				return fmt.Errorf("doctor: %s: %w", s.Property, err)
			}
			p.MaxDeliveryCount = to.Ptr(int32(n))
		default:
			return fmt.Errorf("doctor: %s is not repairable", s.Property)
		}
	}
	return nil
}
