// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Memory measures the resident memory of a sidecar, idle and with outstanding deadlines.
type Memory struct {
	Outstanding []int         // deadlines, in rising numbers
	Companions  string        // as the setting
	Pause       time.Duration // before each sample, so that garbage is returned
}

// MemoryResult is the result of Memory.
type MemoryResult struct {
	Head
	Companions string           `json:"companions"`
	Processes  []*processMemory `json:"processes"`
}

// processMemory is the memory of one process.
type processMemory struct {
	Process     string         `json:"process"`
	Idle        memorySample   `json:"idle"`
	Outstanding []memorySample `json:"outstanding"`
}

// memorySample is the memory of one process at one time.
type memorySample struct {
	Outstanding int     `json:"outstanding"`
	ResidentMiB float64 `json:"residentMiB"`
	// LiveMiB is the reachable memory after a collection, without the headroom, which no memory
	// backs.
	LiveMiB float64 `json:"liveMiB"`
}

// Measure sends messages through the proxy, and samples proxy and monitor before and after.
func (plan *Memory) Measure(ctx context.Context, p *Program, progress func(string)) (_ Result, err error) {
	r := &MemoryResult{Head: p.head(), Companions: plan.Companions}
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	for _, command := range []string{"proxy", "monitor"} {
		if _, err := sc.add(ctx, command, plan.Companions); err != nil {
			return nil, err
		}
		r.Processes = append(r.Processes, &processMemory{Process: command})
	}
	sent := 0
	for _, n := range append([]int{0}, plan.Outstanding...) {
		progress(fmt.Sprintf("%d outstanding deadlines", n))
		if err := plan.send(ctx, sc, sent, n); err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		sent = n
		if err := sc.pause(ctx, plan.Pause); err != nil {
			return nil, err
		}
		for i, c := range sc.others {
			sample, err := c.sampleMemory(ctx, n, p.HeapHeadroom)
			if err != nil {
				return nil, err
			}
			if l := r.Processes[i]; n == 0 {
				l.Idle = sample
			} else {
				l.Outstanding = append(l.Outstanding, sample)
			}
		}
	}
	return r, nil
}

// send sends the messages from first up to end.
func (plan *Memory) send(ctx context.Context, sc *scene, first, end int) error {
	if first == end {
		return nil // idle, without a connection
	}
	body, hour := makePayload(usualPayload), time.Hour
	load, err := openLoad(ctx, sc.others[0].amqp, []string{workQueue},
		func(i int) *azservicebus.Message { return newMessage(i, body, &hour) })
	if err != nil {
		return err
	}
	defer load.shut()
	return load.send(ctx, first, end)
}

// sampleMemory reads the memory before and after a collection.
func (c *child) sampleMemory(ctx context.Context, outstanding, headroom int) (memorySample, error) {
	resident, err := c.metrics(ctx)
	if err != nil {
		return memorySample{}, err
	}
	if _, err := c.get(ctx, c.admin, "/debug/pprof/heap?gc=1"); err != nil {
		return memorySample{}, err
	}
	live, err := c.metrics(ctx)
	return memorySample{
		Outstanding: outstanding,
		ResidentMiB: mebibytes(resident[sampleMemory]),
		LiveMiB:     mebibytes(live["go_memstats_heap_alloc_bytes"] - float64(headroom)),
	}, err
}

// Figures have the idle memory, and the growth of the used memory from the second-last to the last
// number of outstanding deadlines. Traffic costs the same in both.
func (r *MemoryResult) Figures() (all []Figure) {
	for _, l := range r.Processes {
		all = append(all, Figure{
			Name:  "memory." + l.Process + ".idle",
			What:  "resident memory of overdue " + l.Process + ", idle",
			Value: l.Idle.ResidentMiB, Unit: "MiB",
		}.atMost(36))
		if n := len(l.Outstanding); n > 0 {
			last, before := l.Outstanding[n-1], l.Idle
			if n > 1 {
				before = l.Outstanding[n-2]
			}
			all = append(all, Figure{
				Name: "memory." + l.Process + ".outstanding", Value: last.ResidentMiB, Unit: "MiB",
				What: fmt.Sprintf("… with %d outstanding deadlines", last.Outstanding),
			}, Figure{
				Name:  "memory." + l.Process + ".growth",
				Value: rounded(last.LiveMiB - before.LiveMiB), Unit: "MiB",
				What: fmt.Sprintf("… growth of used memory, %d against %d", last.Outstanding,
					before.Outstanding),
			}.atMost(1))
		}
	}
	return all
}

// WriteTable writes a row for each number of outstanding deadlines.
func (r *MemoryResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"MiB resident, in use after a collection"}}
	for _, l := range r.Processes {
		rows[0] = append(rows[0], l.Process, "")
		for i, p := range append([]memorySample{l.Idle}, l.Outstanding...) {
			if len(rows) == i+1 {
				name := "idle"
				if i > 0 {
					name = strconv.Itoa(p.Outstanding) + " outstanding"
				}
				rows = append(rows, []string{name})
			}
			rows[i+1] = append(rows[i+1], fmt.Sprintf("%.1f", p.ResidentMiB),
				fmt.Sprintf("%.1f", p.LiveMiB))
		}
	}
	headline := fmt.Sprintf("companions: %s, %s", r.Companions, r.where())
	return writeReport(w, headline, rows, "", r.Figures())
}
