// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Details is what an operator wants to know of an entity beyond Info. It is read each time, since
// it counts.
type Details struct {
	Info
	Status           string // Active, Disabled, SendDisabled, ReceiveDisabled; "" = not said
	MaxDeliveryCount int    // 0 = not said
	Counts           Counts

	// Subscriptions of a topic, in the order of Info.Subscriptions.
	Subscriptions []SubscriptionDetails
}

// SubscriptionDetails is Details of a subscription.
type SubscriptionDetails struct {
	Subscription
	Status           string
	MaxDeliveryCount int
	Counts           Counts
}

// Counts are messages, as the administration API counts them: expired ones that are still there
// count as active.
type Counts struct {
	Active, Scheduled, DeadLetter, TransferDeadLetter int64
}

// Describe is Read with what changes by itself.
func (a *Admin) Describe(ctx context.Context, name string) (Details, error) {
	answer, err := a.get(ctx, name, "", nil)
	if err != nil {
		return Details{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	var d Details
	info, said, err := entityOf(answer)
	if err == nil {
		d = Details{Info: info, Status: said.Status, MaxDeliveryCount: int(said.MaxDeliveryCount), Counts: said.Counts}
		if d.Kind == Topic {
			d.Subscriptions, err = a.subscriptionDetails(ctx, name)
		}
	}
	if err != nil {
		return Details{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	for _, s := range d.Subscriptions {
		d.Info.Subscriptions = append(d.Info.Subscriptions, s.Subscription)
	}
	return d, nil
}

// Tier is Basic, Standard or Premium. It needs the Manage right of the whole namespace.
func (a *Admin) Tier(ctx context.Context) (string, error) {
	answer, err := a.get(ctx, "$namespaceinfo", "", nil)
	if err != nil {
		return "", fmt.Errorf("tier of the namespace: %w", err)
	}
	for _, e := range answer.Entries {
		if d := e.Description; d != nil && d.Name.Local == "NamespaceInfo" && d.ChildText("MessagingSKU") != "" {
			return d.ChildText("MessagingSKU"), nil
		}
	}
	return "", errors.New("tier of the namespace: the answer does not say it")
}

// List names the queues or topics of the namespace, at most limit of them, in the order of their
// names; more reports that there are others.
func (a *Admin) List(ctx context.Context, kind Kind, limit int) (names []string, more bool, err error) {
	which := map[Kind]string{Queue: "Queues", Topic: "Topics"}[kind]
	for len(names) <= limit {
		answer, err := a.get(ctx, "$Resources/"+which, "", url.Values{
			"$skip": {strconv.Itoa(len(names))}, "$top": {strconv.Itoa(pageSize)},
		})
		if err != nil {
			return nil, false, fmt.Errorf("list of %s: %w", strings.ToLower(which), err)
		}
		for _, e := range answer.Entries {
			if e.Title == "" {
				return nil, false, fmt.Errorf("list of %s: the answer has an entry without a name", strings.ToLower(which))
			}
			names = append(names, e.Title)
		}
		if len(answer.Entries) < pageSize {
			break
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, false, nil
}

// Endpoint is the one of Endpoints that answered last, the first before any has.
func (a *Admin) Endpoint() string { return a.Endpoints[a.good.Load()] }
