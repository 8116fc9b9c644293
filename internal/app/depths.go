// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/web"
)

// depths counts the messages of the namespace for the dashboard. Where the process has the broker,
// the dashboard asks that.
func (p *Process) depths(links *link.Namespace) func(context.Context, string) (map[string]web.Depth, error) {
	if p.broker != nil {
		return nil
	}
	return func(ctx context.Context, name string) (map[string]web.Depth, error) {
		_, unknown := p.describe(ctx, name)
		if api, ok := p.source.(*entities.Admin); ok && unknown == nil {
			return countedDepths(ctx, api, name)
		}
		return peekedDepths(ctx, links, name)
	}
}

// countedDepths are those of a queue, or of the subscriptions of a topic, as the administration API
// has them.
func countedDepths(ctx context.Context, api *entities.Admin, name string) (map[string]web.Depth, error) {
	d, err := api.Describe(ctx, name)
	if err != nil {
		return nil, err
	}
	all := map[string]web.Depth{}
	add := func(path string, c entities.Counts) {
		all[path] = web.Depth{Messages: uint64(max(c.Active, 0)), DeadLetters: uint64(max(c.DeadLetter, 0))}
	}
	if d.Kind == entities.Queue {
		add(name, d.Counts)
	}
	for i := range d.Subscriptions {
		add(address.Address{Name: name, Subscription: d.Subscriptions[i].Name}.Entity(), d.Subscriptions[i].Counts)
	}
	return all, nil
}

// peekedDepths are those of a queue as far as one peek goes: that takes no right to manage.
func peekedDepths(ctx context.Context, links *link.Namespace, name string) (map[string]web.Depth, error) {
	messages, err := countMessages(ctx, links, name, deadLetterPage)
	if err != nil {
		return nil, err
	}
	letters, err := countMessages(ctx, links, name+deadLetterQueue, deadLetterPage)
	if err != nil {
		return nil, err
	}
	return map[string]web.Depth{name: {
		Messages:        uint64(messages.Count),
		More:            messages.More,
		DeadLetters:     uint64(letters.Count),
		MoreDeadLetters: letters.More,
	}}, nil
}
