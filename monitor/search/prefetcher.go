// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

// readAhead is how much more than what is wanted is read at least, where nobody waits for another
// range, so that the next one mostly was read when it is wanted.
const readAhead = 100 * time.Millisecond

// A Prefetcher reads ranges of a work queue into a cache in a goroutine of its own. So a nudge that
// must not expire what nobody has read waits for no check. All exported fields are required.
type Prefetcher struct {
	Links      *link.Namespace
	Path       string // of the work queue
	Operations *operations.Counter
	Seen       *SeenIDs
	Cache      *RangeCache
	Final      func() int64 // ranges before it are read, once; the others are not
	Fetched    func()       // is called after each read
	Go         func(func()) // runs the goroutine

	mu       sync.Mutex
	wanted   []wantedRange
	fetching bool
	ended    bool
	more     chan struct{} // a token: a range is wanted; nil: it does not run yet
}

// wantedRange is a range to read, and where the result goes.
type wantedRange struct {
	TimeRange
	done chan<- error
}

// errEnded is the result of what is wanted after End.
var errEnded = errors.New("nothing is read ahead any more")

// Fetch has ranges read, as far as the cache lacks them. done gets the result of each.
func (p *Prefetcher) Fetch(ctx context.Context, ranges ...TimeRange) (done <-chan error) {
	results := make(chan error, len(ranges))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range ranges {
		if p.ended {
			results <- errEnded
			continue
		}
		p.wanted = append(p.wanted, wantedRange{in, results})
	}
	if p.ended {
		return results
	}
	if p.more == nil {
		p.more = make(chan struct{}, 1)
		p.Go(func() { p.run(ctx) })
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
	return results
}

// End ends the goroutine. What is wanted is not read any more.
func (p *Prefetcher) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.more != nil && !p.ended {
		close(p.more)
	}
	p.wanted, p.ended = nil, true
}

// Busy reports whether ranges are wanted that were not read yet.
func (p *Prefetcher) Busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.wanted) > 0 || p.fetching
}

// run reads what is wanted, and a little more. Where a read fails, nothing that was wanted by then is
// read: each might take as long to fail.
func (p *Prefetcher) run(ctx context.Context) {
	view := &View{Links: p.Links, Path: p.Path, Operations: p.Operations, Seen: p.Seen}
	defer view.Close(ctx)
	var last int64 // the end of what was read last; 0: what follows was read as well, or a read has failed
	for {
		w, some := p.next()
		switch {
		case some:
			last = w.Until
			err := p.fetch(ctx, view, w.TimeRange)
			for _, w := range append(p.end(err), w) {
				w.done <- err
			}
			if err != nil {
				last = 0
			}
			p.Fetched()
		case last != 0:
			if p.mayReadAhead(last) {
				_ = p.fetch(ctx, view, p.final(last, 2*readAhead)) // a caller that wants it gets the error
			}
			last = 0 // once: it is not in the cache where that does not keep short ranges
		default:
			if _, goesOn := <-p.more; !goesOn {
				return
			}
		}
	}
}

// next takes the next range that is wanted.
func (p *Prefetcher) next() (w wantedRange, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wanted) == 0 {
		return w, false
	}
	w, p.wanted, p.fetching = p.wanted[0], p.wanted[1:], true
	return w, true
}

// end ends the read of a range. After an error it takes all that is wanted.
func (p *Prefetcher) end(err error) (given []wantedRange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fetching = false; err != nil {
		given, p.wanted = p.wanted, nil
	}
	return given
}

// mayReadAhead reports whether little of what follows an instant was read.
func (p *Prefetcher) mayReadAhead(from int64) bool {
	all, _ := p.Cache.HasAll(p.final(from, readAhead))
	return !all
}

// final returns the range of that length from an instant on, as far as it is final.
func (p *Prefetcher) final(from int64, length time.Duration) TimeRange {
	return TimeRange{from, min(from+length.Milliseconds(), p.Final())}
}

// fetch reads a range, as far as it is final.
func (p *Prefetcher) fetch(ctx context.Context, view *View, in TimeRange) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	final := p.Final()
	in.Until = min(in.Until, final)
	if all, _ := p.Cache.HasAll(in); all || in.Empty() {
		return nil
	}
	return p.Cache.Waiting(ctx, in, final, func(ctx context.Context, s TimeRange, see func(*link.Message) (more bool)) (bool, error) {
		err := view.betweenWhile(ctx, s.First(), s.Last(), see)
		return view.Cursor, err
	}, func(*link.Message) {}, Due{}, func(*CachedMessage) {})
}
