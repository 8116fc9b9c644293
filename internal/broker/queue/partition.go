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

// partition is the part of the next sequence number that says where m belongs: messages of one
// session or one partition key stay together, the others go round.
func (q *Queue) partition(m *Message) int64 {
	p := q.keyedPartition(m)
	if p < 0 {
		p = int64(q.turn%Partitions + 1)
		q.turn++
	}
	return p << partitionShift
}

// keyedPartition is where m belongs by what it says: 0 where there are no partitions, below that
// when it says nothing.
func (q *Queue) keyedPartition(m *Message) int64 {
	key := m.partitionKey()
	switch {
	case !q.cfg.Partitioned:
		return 0
	case key == "":
		return -1
	}
	return int64(hash(key)%Partitions + 1)
}

// onePartition is the partition of n messages when it is the same for all, and known.
func onePartition(n int, of func(i int) int64) (p int64, one bool) {
	for i := range n {
		next := of(i)
		if next < 0 || i > 0 && next != p {
			return 0, false
		}
		p = next
	}
	return p, true
}

// routing is what messages have in common that are sent to a partitioned queue in one go: session,
// partition key, and message-id where that takes the place of both.
func (q *Queue) routing(m *Message) [3]string {
	r := [3]string{m.SessionID, m.partitionKey()}
	if q.cfg.RequiresDuplicateDetection && r[1] == "" {
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
