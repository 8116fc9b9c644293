// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// writeChunk is how many bytes share a deadline.
const writeChunk = 64 << 10

// Write writes buf, piece by piece so that the deadline is about progress and not about the size of
// a burst. It asks timeout before each piece.
func Write(nc net.Conn, buf []byte, timeout func() time.Duration) error {
	for len(buf) > 0 {
		piece := buf[:min(len(buf), writeChunk)]
		if err := nc.SetWriteDeadline(time.Now().Add(timeout())); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if _, err := nc.Write(piece); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("peer does not read: %w", err)
			}
			return fmt.Errorf("write: %w", err)
		}
		buf = buf[len(piece):]
	}
	return nil
}
