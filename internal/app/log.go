// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"slices"
	"strings"

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
