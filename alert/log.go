// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"

	"go.uber.org/zap"
)

// NewLog is an Alerter that writes each event to the log, for those who alert from there.
func NewLog(log *zap.Logger) Alerter { return logAlerter{log} }

type logAlerter struct{ log *zap.Logger }

func (logAlerter) Name() string { return "log" }

func (a logAlerter) Alert(_ context.Context, e Event) error {
	a.log.Warn("alert", zap.String("type", e.Type), zap.String("id", e.ID), zap.Any("event", e))
	return nil
}
