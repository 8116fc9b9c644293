// SPDX-License-Identifier: Apache-2.0

package relay

const (
	// maxRuns bounds the runs that are kept. A run begins after each delivery that did not go on
	// or that the relay sent itself. A dropped run was settled long ago, or is never settled.
	maxRuns = 8192
	// maxRun keeps the ids of a run comparable.
	maxRun = 1 << 30
)

// An idMap maps the delivery-ids of one peer to those on the other side. Both count up by one,
// because some peers insist on it. They diverge where a delivery has not gone on, or where the
// relay has sent one of its own. Ids are serial numbers and wrap.
//
// The ids of a peer need not rise: the Python SDK repeats an id when several threads send
// (Session._outgoing_transfer of azure/servicebus/_pyamqp). Each is a delivery of its own on the
// other side, and gets its own outcome.
type idMap struct {
	runs     []run
	unsorted bool // by the ids where they came from
}

// A run is n deliveries in a row, from the first's id where it came from and
// where it went.
type run struct{ in, out, n uint32 }

// A span is a run of ids, inclusive.
type span struct{ first, last uint32 }

// before compares serial numbers.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// add records that the delivery in went on as out.
func (m *idMap) add(in, out uint32) {
	if n := len(m.runs); n > 0 {
		if r := &m.runs[n-1]; in == r.in+r.n && out == r.out+r.n && r.n < maxRun {
			r.n++
			return
		} else if !before(r.in+r.n-1, in) {
			m.unsorted = true
		}
	}
	if len(m.runs) == maxRuns {
		m.runs = m.runs[:copy(m.runs, m.runs[maxRuns/2:])]
	}
	m.runs = append(m.runs, run{in, out, 1})
}

// outs calls f with the ids on the other side of the deliveries r, which are the sender's ids. It
// skips those that have not gone on.
func (m *idMap) outs(r span, f func(span)) {
	ends := func(p run) (uint32, uint32) { return p.in, p.out }
	if m.unsorted {
		for _, p := range m.runs {
			p.meet(r, ends, f)
		}
		return
	}
	m.each(r, ends, f)
}

// ins is the inverse of outs.
func (m *idMap) ins(r span, f func(span)) {
	m.each(r, func(p run) (uint32, uint32) { return p.out, p.in }, f)
}

func (m *idMap) each(r span, ends func(run) (from, to uint32), f func(span)) {
	for i := m.find(r.first, ends); i < len(m.runs); i++ {
		if from, _ := ends(m.runs[i]); before(r.last, from) {
			return
		}
		m.runs[i].meet(r, ends, f)
	}
}

// meet calls f with the part of r in the run, in ids of the other side.
func (p run) meet(r span, ends func(run) (from, to uint32), f func(span)) {
	from, to := ends(p)
	end := from + p.n - 1
	first, last := r.first, r.last
	if before(first, from) {
		first = from
	}
	if before(end, last) {
		last = end
	}
	if !before(last, first) {
		f(span{to + (first - from), to + (last - from)})
	}
}

// find returns the last run that begins at id or before it, or the first.
func (m *idMap) find(id uint32, ends func(run) (from, to uint32)) int {
	lo, hi := 0, len(m.runs)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if from, _ := ends(m.runs[mid]); before(id, from) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}
