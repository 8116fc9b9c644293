// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"sync"
)

// waitFor waits for wg, or returns the cause of ctx when ctx ends. Its goroutine then stays until
// wg is done.
func waitFor(ctx context.Context, wg *sync.WaitGroup) error {
	landed := make(chan struct{})
	go func() {
		wg.Wait()
		close(landed)
	}()
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
