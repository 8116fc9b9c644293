// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/terminal"
)

// alertLog is the name of the logger of sinks.
const alertLog = "alert"

// NewLog logs to w in the configured format. The level can be changed while it runs.
func NewLog(w io.Writer, c config.Log) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(c.Level)
	if err != nil {
		return nil, level, err
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if c.Format == "console" || c.Format == "auto" && terminal.Is(w) {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoding.ConsoleSeparator = " "
		encoder = oneLine{zapcore.NewConsoleEncoder(encoding)}
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(escape.NewWriter(w))), level)
	return zap.New(newLogCore(core, level)), level, nil
}

// oneLine keeps an entry on its line. It escapes the message, which is not JSON as the fields are.
// Of an event it shows the message alone, which fits into 100 columns.
type oneLine struct{ zapcore.Encoder }

func (o oneLine) Clone() zapcore.Encoder { return oneLine{o.Encoder.Clone()} }

func (o oneLine) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	e.Message = escape.Text(e.Message)
	if slices.ContainsFunc(fields, isEvent) {
		fields = slices.DeleteFunc(slices.Clone(fields), isEvent)
		e.LoggerName = ""
	}
	return o.Encoder.EncodeEntry(e, fields)
}

// isEvent reports whether f has the fields of an event: nothing else logs fields inline.
func isEvent(f zapcore.Field) bool { return f.Type == zapcore.InlineMarshalerType }

// How many warnings and errors with the same message are logged in a span of time. An outage has
// one for each send, companion and check, and they would hide other lines. So would those of the
// proxy about connections: apps connect again and again.
const (
	repeatSpan = 10 * time.Second
	repeatsMax = 5
)

// proxyLog names the logger of the proxy.
const proxyLog = "proxy"

// A logCore limits warnings and errors that repeat, and information of the proxy. The next line that
// is limited says how many were left out. Events are logged all, since the log is a sink of alerts.
// At level debug nothing is left out. An error of several lines, as errors.Join makes them, takes one.
type logCore struct {
	zapcore.Core
	limited zapcore.Core  // the same, without repeats
	leftOut *atomic.Int64 // lines, since the last one that says so; nil: its lines do not say it
	level   zap.AtomicLevel
}

func newLogCore(core zapcore.Core, level zap.AtomicLevel) logCore {
	counting := logCore{Core: core, leftOut: &atomic.Int64{}, level: level}
	hook := zapcore.SamplerHook(func(_ zapcore.Entry, d zapcore.SamplingDecision) {
		if d&zapcore.LogDropped != 0 {
			counting.leftOut.Add(1)
		}
	})
	limited := zapcore.NewSamplerWithOptions(counting, repeatSpan, repeatsMax, 0, hook)
	return logCore{Core: core, limited: limited, level: level}
}

func (c logCore) With(fields []zapcore.Field) zapcore.Core {
	c.Core = c.Core.With(joined(fields))
	if c.limited != nil {
		c.limited = c.limited.With(fields)
	}
	return c
}

func (c logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	repeats := e.Level >= zap.WarnLevel || e.Level == zap.InfoLevel && e.LoggerName == proxyLog
	switch {
	case !c.Enabled(e.Level):
		return ce
	case c.limited != nil && repeats && e.LoggerName != alertLog && !c.level.Enabled(zap.DebugLevel):
		return c.limited.Check(e, ce)
	}
	return ce.AddCore(e, c)
}

func (c logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = joined(fields)
	if c.leftOut != nil {
		if n := c.leftOut.Swap(0); n > 0 {
			fields = append(fields, zap.Int64("lines_left_out", n))
		}
	}
	return c.Core.Write(e, fields)
}

// joined returns fields whose errors take one line each.
func joined(fields []zapcore.Field) []zapcore.Field {
	fields = slices.Clone(fields)
	for i, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType && strings.Contains(err.Error(), "\n") {
			fields[i] = zap.String(f.Key, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return fields
}
