// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// traceFrames logs the frames of the AMQP endpoint, for relay.Config.Trace. While the level is above debug a
// frame costs the making of its line and no more.
func traceFrames(log *zap.Logger) func(side, dir, line string) {
	return func(side, dir, line string) {
		if entry := log.Check(zapcore.DebugLevel, "frame"); entry != nil {
			entry.Write(zap.String("side", side), zap.String("dir", dir), zap.String("frame", withoutTag(line)))
		}
	}
}

// withoutTag is a line without its delivery tag, which Service Bus makes of the lock token.
func withoutTag(line string) string {
	before, after, found := strings.Cut(line, " tag=")
	if !found {
		return line
	}
	if end := strings.IndexByte(after, ' '); end >= 0 {
		return before + after[end:]
	}
	return before
}
