// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitEndsWithTheLastOrWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		wg.Go(func() { time.Sleep(time.Minute) })
		wg.Go(func() { time.Sleep(time.Hour) })

		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		began := time.Now()
		if err := Wait(ctx, &wg); !errors.Is(err, late) {
			t.Errorf("Wait for an hour, of a minute = %v, want %v", err, late)
		}
		if err := Wait(t.Context(), &wg); err != nil {
			t.Errorf("Wait = %v", err)
		}
		if d := time.Since(began); d != time.Hour {
			t.Errorf("waited for %v, want until the last of them is done, 1h", d)
		}
	})
}
