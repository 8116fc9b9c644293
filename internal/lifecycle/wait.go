// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"sync"
)

// Wait waits for wg, or returns the cause of ctx when ctx ends. Its goroutine then stays until wg is
// done.
func Wait(ctx context.Context, wg *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
