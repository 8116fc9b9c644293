// SPDX-License-Identifier: Apache-2.0

package queue

// Partitions is how many partitions a partitioned queue has. A sequence number of such a queue has
// the partition, from 1 to Partitions, in its top 16 bits.
const Partitions = 16

// partitionShift is where the partition stands in a sequence number. Below it stands the order of
// arrival, which the partitions count together: that keeps one order of delivery for the whole
// queue.
const partitionShift = 48

// arrival is the place of a sequence number in the order of arrival, partitioned or not: no queue
// lives to see 2^48 messages.
func arrival(seq int64) int64 { return seq & (1<<partitionShift - 1) }

// numbers gives messages their sequence numbers.
type numbers struct {
	cfg  *settings
	last int64  // without partition
	turn uint32 // of partitions, for messages that belong to none
}

// position is where the numbers stand: the latest place in the order of arrival and, where a
// sequence number has the partition, the turn.
func (n *numbers) position() int64 { return int64(n.turn%Partitions)<<partitionShift | n.last }

// resume is the opposite of position.
func (n *numbers) resume(position int64) {
	n.last, n.turn = arrival(position), uint32(position>>partitionShift)
}

// next is the next sequence number, for m. Messages of one session or one partition key stay in one
// partition, the others go round.
func (n *numbers) next(m *Message) int64 {
	p := n.keyedPartition(m)
	if p < 0 {
		p = int64(n.turn%Partitions + 1)
		n.turn++
	}
	return p<<partitionShift | n.nextArrival()
}

// nextArrival is the next place in the order of arrival.
func (n *numbers) nextArrival() int64 {
	n.last++
	return n.last
}

// nextOf is the next sequence numbers, for ms.
func (n *numbers) nextOf(ms []Message) []int64 {
	seqs := make([]int64, len(ms))
	for i := range ms {
		seqs[i] = n.next(&ms[i])
	}
	return seqs
}

// keyedPartition is where m belongs by what it says: 0 where there are no partitions, below that
// when it says nothing.
func (n *numbers) keyedPartition(m *Message) int64 {
	key := m.partitionKey()
	switch {
	case !n.cfg.Partitioned:
		return 0
	case key == "":
		return -1
	}
	return int64(hash(key)%Partitions + 1)
}

// onePartition is the partition of n messages when it is the same for all, and known.
func onePartition(n int, partition func(i int) int64) (p int64, one bool) {
	for i := range n {
		next := partition(i)
		if next < 0 || i > 0 && next != p {
			return 0, false
		}
		p = next
	}
	return p, true
}

// routing is what messages have in common that are sent to a partitioned queue in one go: session,
// partition key, and message-id where that takes the place of both.
func (n *numbers) routing(m *Message) [3]string {
	r := [3]string{m.SessionID, m.partitionKey()}
	if n.cfg.RequiresDuplicateDetection && r[1] == "" {
		r[2] = m.MessageID
	}
	return r
}

// partitionKey returns the key that keeps messages together: the session, or the key where there is
// no session.
func (m *Message) partitionKey() string {
	if m.SessionID != "" {
		return m.SessionID
	}
	return m.PartitionKey
}

// hash is FNV-1a, 32 bits.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
