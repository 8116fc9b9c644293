// SPDX-License-Identifier: Apache-2.0

// Package monitorqueue names the monitor queues of a namespace, and says which of them has the
// companions of an entity. Every process with the same settings says the same, in every release:
// companions that are written by one must be found by all.
package monitorqueue

import (
	"strconv"
	"strings"
)

// Most bounds the monitor queues. Each costs a connection of every process that writes to it.
const Most = 16

// Queues are the monitor queues of one configuration.
type Queues struct {
	first string
	n     int
}

// Of returns n monitor queues, the first of which has that name. An n below 1 is 1.
func Of(first string, n int) Queues { return Queues{first: first, n: max(n, 1)} }

// Len returns how many there are.
func (q Queues) Len() int { return q.n }

// Name returns the name of a monitor queue, the first of which is 0. It also names those that
// there were with a larger number of queues.
func (q Queues) Name(i int) string {
	if i == 0 {
		return q.first
	}
	return q.first + "." + strconv.Itoa(i+1)
}

// Names returns the names of all.
func (q Queues) Names() []string {
	all := make([]string, q.n)
	for i := range all {
		all[i] = q.Name(i)
	}
	return all
}

// Index returns which of the queues has the companions of an entity. The entity is a queue, a
// topic, or one of the subscriptions of a topic, which all share the topic's queue.
//
// It is the jump consistent hash of Lamping and Veach: when there are more queues, an entity stays
// where it is or moves to a new one.
func (q Queues) Index(entity string) int {
	if q.n == 1 {
		return 0
	}
	h := hash(entity)
	at, next := 0, 0
	for next < q.n {
		at = next
		h = h*2862933555777941757 + 1
		next = int(float64(at+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return at
}

// For is the name of the queue that has the companions of an entity.
func (q Queues) For(entity string) string { return q.Name(q.Index(entity)) }

// subscriptions separates a topic from its subscription, in any case.
const subscriptions = "/subscriptions/"

// hash is FNV-1a of the name without regard to case, up to the name of a subscription. It ends with
// the last step of MurmurHash3, since names often differ in their last characters only.
func hash(entity string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(entity); i++ {
		if entity[i] == '/' && len(entity)-i > len(subscriptions) && strings.EqualFold(entity[i:i+len(subscriptions)], subscriptions) {
			break
		}
		c := entity[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Has reports whether that is the name of a monitor queue, also of one that there was, or will be,
// with a larger number of them.
func (q Queues) Has(name string) bool {
	if q.first == "" || len(name) < len(q.first) || !strings.EqualFold(name[:len(q.first)], q.first) {
		return false
	}
	rest := name[len(q.first):]
	if rest == "" {
		return true
	}
	number, ok := strings.CutPrefix(rest, ".")
	n, err := strconv.Atoi(number)
	return ok && err == nil && 2 <= n && n <= Most && number == strconv.Itoa(n)
}
