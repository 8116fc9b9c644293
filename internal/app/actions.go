// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/servicebus/link"
)

// actionFolder is where the dashboard keeps the journals of resubmissions: with the state of this
// process, or where the commands of this user keep theirs.
func actionFolder(c *config.Config) (string, error) {
	if c.StateDirectory != "" {
		return filepath.Join(c.StateDirectory, "resubmit"), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the journal of a resubmission; set HOME, or XDG_CACHE_HOME: %w", err)
	}
	return filepath.Join(cache, "overdue"), nil
}

// actionSender sends to an entity through an endpoint of its own, as the commands of operators do.
// The rights of apps at the endpoints of this process do not apply to it.
func (p *Process) actionSender(ctx context.Context, to string) (out *link.Sender, done func(), err error) {
	c := p.current()
	if c.Embedded() {
		c = c.WithNamespace(p.OwnConnectionString())
	}
	quiet := p.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	proc, text, err := StartPrivate(ctx, c, quiet, zap.NewAtomicLevelAt(zap.ErrorLevel))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = proc.Stop() // nothing was sent
		}
	}()
	ns, err := connect.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	links, _, err := ns.Links()
	if err != nil {
		return nil, nil, err
	}
	if out, err = links.Sender(ctx, to); err != nil {
		_ = links.Close() // it has no sender
		return nil, nil, err
	}
	return out, func() {
		out.Close(context.WithoutCancel(ctx))
		// Messages that were sent have been acknowledged by now, with their companions.
		_ = links.Close()
		_ = proc.Stop()
	}, nil
}
