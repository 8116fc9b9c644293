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
	return zap.New(leaveOutRepeats(joinsLines{core}, level)), level, nil
}

// joinsLines writes an error of several lines, as errors.Join makes them, on one.
type joinsLines struct{ zapcore.Core }

func (j joinsLines) With(fields []zapcore.Field) zapcore.Core {
	return joinsLines{j.Core.With(joined(fields))}
}

func (j joinsLines) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if j.Enabled(e.Level) {
		return ce.AddCore(e, j)
	}
	return ce
}

func (j joinsLines) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return j.Core.Write(e, joined(fields))
}

// joined returns fields whose errors take one line each.
func joined(fields []zapcore.Field) []zapcore.Field {
	var changed []zapcore.Field
	for i, f := range fields {
		err, ok := f.Interface.(error)
		if f.Type != zapcore.ErrorType || !ok || !strings.Contains(err.Error(), "\n") {
			continue
		}
		if changed == nil {
			changed = slices.Clone(fields)
		}
		changed[i] = zap.String(f.Key, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if changed == nil {
		return fields
	}
	return changed
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

// leaveOutRepeats limits warnings and errors of core that repeat, and information of the proxy. The
// next line that is logged says how many were left out. Events are logged all, since the log is a
// sink of alerts. At level debug nothing is left out.
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
