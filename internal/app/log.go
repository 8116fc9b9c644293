// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"overdue/alert"
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
	return zap.New(leaveOutRepeats(core, level)), level, nil
}

// oneLine keeps an entry on its line. It escapes the message, which is not JSON as the fields are. Of
// an event it shows the message alone, which fits into 100 columns.
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

func isEvent(f zapcore.Field) bool {
	_, ok := f.Interface.(alert.Event)
	return ok
}
