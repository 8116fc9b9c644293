// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// newLog logs to w in the configured format. The level can be changed while it runs.
func newLog(w io.Writer, c logConfig) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(c.Level)
	if err != nil {
		return nil, level, err
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if c.Format == "console" || c.Format == "auto" && isTerminal(w) {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), level, nil
}

// isTerminal reports whether somebody looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
