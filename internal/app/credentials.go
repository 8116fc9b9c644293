// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/servicebus/link"
)

// notAccepted is why other credentials are not in use: the namespace, or Redis, does not accept them
// yet, or does not answer. It may pass without another change of the configuration.
type notAccepted struct{ error }

func (e notAccepted) Unwrap() error { return e.error }

// tryCredentials has the namespace and Redis judge the credentials of c, where they are others than
// those in use. So a wrong key breaks nothing, and once the configuration is said to be reloaded,
// the former key can be deleted. tokens are those of the namespace; nil: there are no others.
func (p *Process) tryCredentials(ctx context.Context, c *config.Config) (tokens link.TokenSource, err error) {
	before := p.current()
	if p.shared != nil && (c.Redis != before.Redis || !c.RedisRoots.Equal(before.RedisRoots)) {
		if err := p.shared.Try(ctx, c.RedisAddress, c.RedisRoots); err != nil {
			return nil, notAccepted{err}
		}
	}
	if p.namespace == nil || c.Namespace == before.Namespace {
		return nil, nil
	}
	next, err := connect.Parse(c.Namespace)
	if err == nil {
		tokens, err = next.Tokens()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.At("namespace"), err)
	}
	links := p.namespace.LinksWith(tokens)
	defer func() { _ = links.Close() }() // they were opened for the asking
	if _, err := newUpstream(p.namespace.Namespace, links, c.AllMonitorQueues().Names(), p.log).try(ctx); err != nil {
		return nil, notAccepted{err}
	}
	return tokens, nil
}

// useCredentials puts the credentials of c into use, after tryCredentials. Connections that are open
// stay.
func (p *Process) useCredentials(c *config.Config, tokens link.TokenSource) {
	if p.shared != nil {
		p.shared.Use(c.RedisAddress, c.RedisRoots)
	}
	if tokens == nil {
		return
	}
	p.namespace.tokens.Replace(tokens)
	if p.endpoints.proxy != nil {
		p.endpoints.proxy.RenewTokens()
	}
}
