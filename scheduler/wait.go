// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
)

// waitFor waits until all of wg are done, or returns the cause of ctx's end. After that its
// goroutine stays until they are.
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
