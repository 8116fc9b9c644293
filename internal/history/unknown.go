// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/redisstore"
)

// MaxUnknown is how many unknown verdicts a history has: the latest. In the file they have places
// of their own, since a queue may have nothing else, and they must not displace missed deadlines.
const MaxUnknown = 1000

// An Unknown is a deadline of which nobody can tell whether it was met.
type Unknown struct {
	Entity         string    `json:"entity"`                   // a queue, or topic/Subscriptions/name
	MessageID      string    `json:"messageId,omitempty"`      // "" = none is known
	SequenceNumber int64     `json:"sequenceNumber,omitempty"` // 0 = the message was never seen
	From           time.Time `json:"from,omitzero"`            // the deadlines of all messages from then to Deadline; zero = of one
	Deadline       time.Time `json:"deadline"`
	Judged         time.Time `json:"judged"`
	Why            string    `json:"why"`
}

// A verdictRing has the latest unknown verdicts.
type verdictRing struct {
	latest       []Unknown // the oldest first
	added, saved uint64    // how many there were since the start, and how many of them were written
}

// unsaved returns those that were not written yet, as far as they are still there.
func (r *verdictRing) unsaved() []Unknown {
	return slices.Clone(r.latest[len(r.latest)-int(min(r.added-r.saved, uint64(len(r.latest)))):])
}

// AddUnknown records an unknown verdict.
func (h *History) AddUnknown(u Unknown) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.unknown
	r.added++
	r.latest = append(r.latest, u)
	r.latest = r.latest[max(0, len(r.latest)-MaxUnknown):]
}

// Unknown returns the latest unknown verdicts, of all processes that share a Redis as far as that
// answers: the latest first, up to limit.
func (h *History) Unknown(ctx context.Context, limit int) (found []Unknown, scope string) {
	h.mu.Lock()
	found = append([]Unknown{}, h.unknown.latest[max(0, len(h.unknown.latest)-limit):]...)
	h.mu.Unlock()
	known := map[string]bool{}
	for _, text := range encodeUnknown(found) {
		known[text] = true
	}
	records, scope := sharedRecords(ctx, h.cfg.Shared, redisstore.UnknownRecord, limit)
	for _, text := range records {
		if u, ok := decodeUnknown([]byte(text)); ok && !known[text] {
			found = append(found, u)
		}
	}
	slices.SortStableFunc(found, func(a, b Unknown) int { return b.Judged.Compare(a.Judged) })
	return found[:min(len(found), limit)], scope
}

func encodeUnknown(all []Unknown) (texts []string) {
	for i := range all {
		if text, err := json.Marshal(&all[i]); err == nil { // texts and times of this century have a JSON form
			texts = append(texts, string(text))
		}
	}
	return texts
}

// decodeUnknown reads a record. Bytes go bad, and others write to Redis.
func decodeUnknown(text []byte) (u Unknown, ok bool) {
	err := json.Unmarshal(text, &u)
	return u, err == nil && u.Entity != ""
}

// putUnknown writes verdicts over the oldest ones.
func putUnknown(bucket *bbolt.Bucket, unknown []Unknown) (err error) {
	for _, text := range encodeUnknown(unknown) {
		place, nextErr := bucket.NextSequence()
		err = errors.Join(err, nextErr, bucket.Put(binary.BigEndian.AppendUint64(nil, place%MaxUnknown), []byte(text)))
	}
	return err
}

// readUnknown reads the verdicts of a file, the oldest first.
func readUnknown(tx *bbolt.Tx) (all []Unknown, err error) {
	bucket, err := tx.CreateBucketIfNotExists(unknownBucket)
	if err != nil {
		return nil, err
	}
	err = bucket.ForEach(func(_, v []byte) error {
		if u, ok := decodeUnknown(v); ok {
			all = append(all, u)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b Unknown) int { return a.Judged.Compare(b.Judged) })
	return all, err
}
