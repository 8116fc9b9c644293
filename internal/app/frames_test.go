// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/amqp"
)

func TestFramesAreLoggedWithoutWhatIsSecret(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	trace := traceFrames(zap.New(core))
	token := []byte{0xde, 0xad, 0xbe, 0xef}
	trace("upstream", "in", amqp.Trace(&amqp.Transfer{Handle: 3, DeliveryID: 7, HasDeliveryID: true, DeliveryTag: token}, 5))
	trace("client", "in", amqp.Trace(&amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00user\x00hunter2")}, 0))
	all := logs.All()
	if len(all) != 2 {
		t.Fatalf("%d frames are logged, want 2", len(all))
	}
	first := all[0].ContextMap()["frame"].(string)
	for _, want := range []string{"transfer", "handle=3", "id=7", "len=5"} {
		if !strings.Contains(first, want) {
			t.Errorf("frame %q, want %s in it", first, want)
		}
	}
	for _, entry := range all {
		for _, secret := range []string{"deadbeef", "hunter2", "tag="} {
			if line := entry.ContextMap()["frame"].(string); strings.Contains(line, secret) {
				t.Errorf("frame %q shows %s", line, secret)
			}
		}
	}
}

func TestFramesAreNotLoggedAboveDebug(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	traceFrames(zap.New(core))("client", "in", "open")
	if n := logs.Len(); n != 0 {
		t.Errorf("%d frames are logged at level info, want none", n)
	}
}
