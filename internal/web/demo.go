// SPDX-License-Identifier: Apache-2.0

package web

// A Demo is what `overdue demo --web` shows above everything else: two queues side by side.
type Demo struct {
	Text   string // what happens at the moment
	Queues []DemoQueue
}

// A DemoQueue is one of the two.
type DemoQueue struct {
	Name, Title, Verdict         string
	Sent, Waiting, Dead, Overdue int // Overdue of the waiting ones
}

// ShowDemo makes the overview show a demo.
func (d *Dashboard) ShowDemo(read func() *Demo) { d.demo.Store(&read) }
