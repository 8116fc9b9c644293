// SPDX-License-Identifier: Apache-2.0

package redisstore

import "time"

// An Item is what waits for its time: a companion or a note.
type Item struct {
	ID          string // what is kept under one is kept once
	Due         time.Time
	ContentType string
	Subject     string
	Body        []byte
	Note        bool // it is no companion, and one of few
}

// A Lease is an item in the hands of one worker. It comes back to another when it is not renewed.
type Lease struct {
	Item
	Place string // where the store has it
}

// A Dead item is one that could not be done, and why.
type Dead struct {
	Item
	At                  time.Time
	Reason, Description string
}

// Counts are how many items a store has.
type Counts struct{ Waiting, Leased, Dead int64 }
