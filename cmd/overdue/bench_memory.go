// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/spf13/cobra"
)

// benchMemoryPlan is what `overdue bench memory` is asked to measure.
type benchMemoryPlan struct {
	outstanding []int // one after the other
	companions  string
	pause       time.Duration // before each look, for garbage to be given back
}

// benchMemoryResult is what --json prints of it.
type benchMemoryResult struct {
	benchHead
	Companions string             `json:"companions"`
	Processes  []*benchMemoryLine `json:"processes"`
}

// benchMemoryLine is one process.
type benchMemoryLine struct {
	Process     string             `json:"process"`
	Idle        benchMemoryPoint   `json:"idle"`
	Outstanding []benchMemoryPoint `json:"outstanding"`
}

// benchMemoryPoint is one process at one time.
type benchMemoryPoint struct {
	Outstanding int     `json:"outstanding"`
	ResidentMiB float64 `json:"residentMiB"`
	// LiveMiB is what is reachable after a collection, without the headroom, on which no memory stands.
	LiveMiB float64 `json:"liveMiB"`
}

func (p *program) benchMemoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure the resident memory of a sidecar, idle and with deadlines outstanding",
		Long: "Starts overdue broker, overdue proxy and overdue monitor, each a process of its own, and measures the\n" +
			"resident memory of the latter two: idle, and when so many messages were sent through the AMQP door\n" +
			"whose deadlines are an hour away.",
	}
	plan := &benchMemoryPlan{}
	outstanding := cmd.Flags().String("outstanding", "50000,100000", "how many deadlines are outstanding, one number after the other, each greater than the one before")
	companions := cmd.Flags().String("companions", "each", "the companions that are written: "+strings.Join(byPath["companions"].enum, ", "))
	cmd.Flags().DurationVar(&plan.pause, "pause", 5*time.Second, "how long nothing happens before each look")
	return p.measuring(cmd, func() (_ *benchPart, err error) {
		if plan.outstanding, err = parseBenchNumbers("outstanding", *outstanding, 1, benchMaxOutstanding, benchMaxCases, "50000,100000"); err != nil {
			return nil, err
		}
		if !slices.IsSorted(plan.outstanding) {
			return nil, fmt.Errorf("--outstanding: %s has to go up", *outstanding)
		}
		if plan.companions, err = parseBenchCompanions(*companions); err != nil {
			return nil, err
		}
		return plan.part(), within("pause", plan.pause, 0, time.Minute)
	})
}

func (plan *benchMemoryPlan) part() *benchPart {
	return &benchPart{"memory", func(ctx context.Context, say func(string)) (_ benchResult, err error) {
		r := &benchMemoryResult{benchHead: newBenchHead(), Companions: plan.companions}
		scene, err := setBenchScene(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, scene.stop()) }()
		for _, role := range []role{roleProxy, roleMonitor} {
			if _, err := scene.add(ctx, role, scene.broker.broker, plan.companions); err != nil {
				return nil, err
			}
			r.Processes = append(r.Processes, &benchMemoryLine{Process: role.name})
		}
		say("idle")
		points, err := plan.look(ctx, scene, 0)
		if err != nil {
			return nil, err
		}
		for i, p := range points {
			r.Processes[i].Idle = p
		}
		sent := 0
		for _, n := range plan.outstanding {
			say(fmt.Sprintf("%d deadlines outstanding", n))
			if err := plan.send(ctx, scene, sent, n); err != nil {
				return nil, errors.Join(err, scene.complaint())
			}
			sent = n
			points, err := plan.look(ctx, scene, n)
			if err != nil {
				return nil, err
			}
			for i, p := range points {
				r.Processes[i].Outstanding = append(r.Processes[i].Outstanding, p)
			}
		}
		return r, nil
	}}
}

// send sends the messages from first up to end.
func (plan *benchMemoryPlan) send(ctx context.Context, scene *benchScene, first, end int) error {
	body, hour := bytes.Repeat([]byte("x"), 256), time.Hour
	load, err := openBenchLoad(ctx, scene.others[0].door, benchQueue, func(i int) *azservicebus.Message {
		id := benchID(i)
		return &azservicebus.Message{Body: body, MessageID: &id, TimeToLive: &hour}
	})
	if err != nil {
		return err
	}
	defer load.shut()
	return load.send(ctx, first, end)
}

// look is the memory of each process after the pause, first as it is and then after a collection.
func (plan *benchMemoryPlan) look(ctx context.Context, scene *benchScene, outstanding int) ([]benchMemoryPoint, error) {
	if err := scene.pause(ctx, time.After(plan.pause)); err != nil {
		return nil, err
	}
	var points []benchMemoryPoint
	for _, c := range scene.others {
		resident, err := c.metrics(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := c.get(ctx, c.admin, "/debug/pprof/heap?gc=1"); err != nil {
			return nil, err
		}
		live, err := c.metrics(ctx)
		if err != nil {
			return nil, err
		}
		points = append(points, benchMemoryPoint{
			Outstanding: outstanding, ResidentMiB: mebibytes(resident[sampleMemory]),
			LiveMiB: mebibytes(live["go_memstats_heap_alloc_bytes"] - heapHeadroom),
		})
	}
	return points, nil
}

// figures: what is idle, and by how much it is more with all deadlines outstanding than with half as many, or whatever
// comes last and before. What the traffic itself costs is in both.
func (r *benchMemoryResult) figures() (all []benchFigure) {
	for _, l := range r.Processes {
		all = append(all, benchFigure{
			Name: "memory." + l.Process + ".idle", What: "resident memory of overdue " + l.Process + ", idle", Value: l.Idle.ResidentMiB, Unit: "MiB",
		}.atMost(32))
		if n := len(l.Outstanding); n > 0 {
			last, before := l.Outstanding[n-1], l.Idle
			if n > 1 {
				before = l.Outstanding[n-2]
			}
			all = append(all, benchFigure{
				Name: "memory." + l.Process + ".outstanding", Value: last.ResidentMiB, Unit: "MiB",
				What: fmt.Sprintf("… with %d deadlines outstanding", last.Outstanding),
			}, benchFigure{
				Name: "memory." + l.Process + ".growth", Value: rounded(last.LiveMiB - before.LiveMiB), Unit: "MiB",
				What: fmt.Sprintf("… what is in use more with %d than with %d", last.Outstanding, before.Outstanding),
			}.atMost(1))
		}
	}
	return all
}

func (r *benchMemoryResult) writeTable(w io.Writer) error {
	rows := [][]string{{"MiB resident, in use after a collection"}}
	for _, l := range r.Processes {
		rows[0] = append(rows[0], l.Process, "")
		for i, p := range append([]benchMemoryPoint{l.Idle}, l.Outstanding...) {
			if len(rows) == i+1 {
				name := "idle"
				if i > 0 {
					name = strconv.Itoa(p.Outstanding) + " outstanding"
				}
				rows = append(rows, []string{name})
			}
			rows[i+1] = append(rows[i+1], fmt.Sprintf("%.1f", p.ResidentMiB), fmt.Sprintf("%.1f", p.LiveMiB))
		}
	}
	return writeResult(w, fmt.Sprintf("companions: %s, %s\n\n%s\n%s", r.Companions, r.where(), tableOf(rows), tableOfFigures(r.figures())))
}

func (r *benchMemoryResult) verdict() error { return nil }
