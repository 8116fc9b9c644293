// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/testseed"
)

// A trickle is a body that comes in pieces, one after every pause.
type trickle struct {
	left, piece int
	pause       time.Duration
	once        sync.Once
	cut         chan struct{}
}

func newTrickle(size, piece int, pause time.Duration) *trickle {
	return &trickle{left: size, piece: piece, pause: pause, cut: make(chan struct{})}
}

func (r *trickle) interrupt() { r.once.Do(func() { close(r.cut) }) }

func (r *trickle) Read(b []byte) (int, error) {
	select {
	case <-time.After(r.pause):
	case <-r.cut:
		return 0, os.ErrDeadlineExceeded
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), r.piece, r.left)
	r.left -= n
	for i := range b[:n] {
		b[i] = 'x'
	}
	return n, nil
}

// upload reads r in a goroutine of its own, and frees the memory of the body at once.
func (b *Bodies) upload(ctx context.Context, r *trickle, most int64) <-chan error {
	ended := make(chan error, 1)
	size := r.left
	go func() {
		body, done, err := b.Read(ctx, r, int64(size), most, r.interrupt)
		if err == nil {
			if done(); len(body) != size {
				err = fmt.Errorf("%d bytes, want %d", len(body), size)
			}
		}
		ended <- err
	}()
	return ended
}

func TestMemoryForABodyIsTakenAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodies(64 << 20)
		r := newTrickle(1<<20, 1<<10, time.Second)
		ended := b.upload(t.Context(), r, 1<<20)
		for came := range 64 {
			synctest.Wait()
			if used, most := b.Used(), int64(max(firstRoom, 2<<10*(came+1))); used > most {
				t.Fatalf("%d bytes are taken for %d KiB that came, want at most %d", used, came, most)
			}
			time.Sleep(time.Second)
		}
		if err := <-ended; err != nil {
			t.Errorf("Read = %v, want nil: nobody else needs the memory", err)
		}
		if used := b.Used(); used != 0 {
			t.Errorf("%d bytes are taken in the end, want none", used)
		}
	})
}

func TestTheSlowestYieldsWhenMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodies(10 * firstRoom)
		slow := make([]<-chan error, 10)
		for i := range slow {
			pause := 100 * time.Millisecond
			if i == 3 {
				pause = time.Second
			}
			r := newTrickle(1<<20, 1, pause)
			defer r.interrupt()
			slow[i] = b.upload(t.Context(), r, 1<<20)
		}
		synctest.Wait()
		start := time.Now()
		if err := <-b.upload(t.Context(), newTrickle(1<<10, 1<<10, 0), 1<<20); err != nil {
			t.Fatalf("a body that comes at once = %v, want nil", err)
		}
		if took := time.Since(start); took > slowGrace {
			t.Errorf("it took %v, want %v at most", took, slowGrace)
		}
		synctest.Wait()
		for i, ended := range slow {
			switch {
			case i != 3 && len(ended) > 0:
				t.Errorf("upload %d has yielded, want the slowest alone to", i)
			case i == 3 && len(ended) == 0:
				t.Error("the slowest has not yielded")
			case i == 3:
				if err := <-ended; !errors.Is(err, ErrSlowBody) {
					t.Errorf("the slowest = %v, want ErrSlowBody", err)
				}
			}
		}
		start = time.Now()
		if err := <-b.upload(t.Context(), newTrickle(8*firstRoom, 1<<10, 0), 1<<20); err != nil {
			t.Errorf("a larger one that comes at once = %v, want nil", err)
		}
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("it took %v when the slow ones are known to be, want no time", took)
		}
	})
}

// All are fast, and each has a part of the memory that the others need.
func TestBodiesThatWaitForEachOtherComeToAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodies(1 << 20)
		all := make([]<-chan error, 8)
		for i := range all {
			all[i] = b.upload(t.Context(), newTrickle(400<<10, 64<<10, time.Millisecond), 1<<20)
			time.Sleep(time.Microsecond)
		}
		start, whole := time.Now(), 0
		for i, ended := range all {
			switch err := <-ended; {
			case err == nil:
				whole++
			case !errors.Is(err, ErrNoRoom):
				t.Errorf("upload %d = %v, want nil or ErrNoRoom", i, err)
			case i == 0:
				t.Error("the one that began first has yielded")
			}
		}
		if whole < 2 {
			t.Errorf("%d bodies came whole, want those for which there is room", whole)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("they took %v, want no more than a second", took)
		}
		if used := b.Used(); used != 0 {
			t.Errorf("%d bytes are taken in the end, want none", used)
		}
	})
}

func TestABodyLargerThanTheBoundHasItsTurnAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodies(1000)
		body, done, err := b.Read(t.Context(), strings.NewReader(strings.Repeat("x", 5000)), -1, 1<<20, nil)
		if err != nil || len(body) != 5000 {
			t.Fatalf("Read = %d bytes, %v, want 5000", len(body), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := b.Read(ctx, strings.NewReader("x"), 1, 1<<20, nil); !errors.Is(err, ErrNoRoom) {
			t.Errorf("Read beside it = %v, want ErrNoRoom", err)
		}
		time.AfterFunc(time.Second, done)
		if _, _, err := b.Read(t.Context(), strings.NewReader("x"), 1, 1<<20, nil); err != nil {
			t.Errorf("Read that waits for its end = %v, want nil", err)
		}
	})
}

func TestABodyThatEndsEarlyIsNone(t *testing.T) {
	b := NewBodies(1000)
	if _, _, err := b.Read(t.Context(), strings.NewReader("abc"), 10, 1000, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Read of 3 bytes in place of 10 = %v, want io.ErrUnexpectedEOF", err)
	}
	broken := errors.New("broken")
	if _, _, err := b.Read(t.Context(), io.MultiReader(strings.NewReader("abc"), brokenReader{broken}), -1, 1000, nil); !errors.Is(err, broken) {
		t.Errorf("Read of a broken reader = %v, want its error", err)
	}
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are taken in the end, want none", used)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

// Whatever comes, however fast: the bound holds, everybody comes to an end, and nothing stays
// taken.
func TestBodiesOfAllKindsKeepTheBound(t *testing.T) {
	random := rand.New(rand.NewPCG(testseed.Of(t), 1))
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			const total = 256 << 10
			b := NewBodies(total)
			var all sync.WaitGroup
			for range 100 {
				size, piece := random.IntN(100<<10), 1+random.IntN(4<<10)
				pause, begin, hold := time.Duration(random.IntN(20))*time.Millisecond, time.Duration(random.IntN(2000))*time.Millisecond, time.Duration(random.IntN(500))*time.Millisecond
				length := int64(size)
				if random.IntN(2) == 0 {
					length = -1
				}
				all.Go(func() {
					time.Sleep(begin)
					r := newTrickle(size, piece, pause)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					body, done, err := b.Read(ctx, r, length, 100<<10, r.interrupt)
					if used := b.Used(); used > total {
						t.Errorf("%d bytes are taken, of %d", used, total)
					}
					switch {
					case err == nil:
						if !bytes.Equal(body, bytes.Repeat([]byte("x"), size)) {
							t.Errorf("%d bytes, want %d", len(body), size)
						}
						time.Sleep(hold)
						done()
						done()
					case !errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrSlowBody):
						t.Errorf("Read = %v", err)
					}
				})
			}
			all.Wait()
			if used := b.Used(); used != 0 || len(b.waiting) != 0 || len(b.uploads) != 0 || b.complete != 0 {
				t.Errorf("%d bytes are taken in the end by %d uploads and %d bodies, and %d wait; want none", used, len(b.uploads), b.complete, len(b.waiting))
			}
		})
	}
}
