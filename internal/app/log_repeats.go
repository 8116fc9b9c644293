// SPDX-License-Identifier: Apache-2.0

package app

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// How many warnings and errors with the same message are logged in a span of time. An outage has one for each send, companion and
// check, and they would hide other lines. So would those of the proxy about connections: apps connect again and again.
const (
	repeatSpan = 10 * time.Second
	repeatsMax = 5
)

// proxyLog names the logger of the proxy.
const proxyLog = "proxy"

// leaveOutRepeats limits warnings and errors of core that repeat, and information of the proxy. The next line that is logged says how many were left out.
// Events are logged all, since the log is a sink of alerts. At level debug nothing is left out.
func leaveOutRepeats(core zapcore.Core, level zap.AtomicLevel) zapcore.Core {
	counting := countsLeftOut{core, &atomic.Int64{}}
	hook := zapcore.SamplerHook(func(_ zapcore.Entry, d zapcore.SamplingDecision) {
		if d&zapcore.LogDropped != 0 {
			counting.leftOut.Add(1)
		}
	})
	return limitsRepeats{core, zapcore.NewSamplerWithOptions(counting, repeatSpan, repeatsMax, 0, hook), level}
}

// limitsRepeats logs with its Core what is never left out, and the rest with limited.
type limitsRepeats struct {
	zapcore.Core
	limited zapcore.Core
	level   zap.AtomicLevel
}

func (l limitsRepeats) With(fields []zapcore.Field) zapcore.Core {
	return limitsRepeats{l.Core.With(fields), l.limited.With(fields), l.level}
}

func (l limitsRepeats) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	repeats := e.Level >= zap.WarnLevel || e.Level == zap.InfoLevel && e.LoggerName == proxyLog
	if !repeats || e.LoggerName == alertLog || l.level.Enabled(zap.DebugLevel) {
		return l.Core.Check(e, ce)
	}
	return l.limited.Check(e, ce)
}

// countsLeftOut adds the number of lines that were left out to the next one.
type countsLeftOut struct {
	zapcore.Core
	leftOut *atomic.Int64
}

func (c countsLeftOut) With(fields []zapcore.Field) zapcore.Core {
	return countsLeftOut{c.Core.With(fields), c.leftOut}
}

func (c countsLeftOut) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c countsLeftOut) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if n := c.leftOut.Swap(0); n > 0 {
		fields = append(fields, zap.Int64("lines_left_out", n))
	}
	return c.Core.Write(e, fields)
}
