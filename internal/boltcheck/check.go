// SPDX-License-Identifier: Apache-2.0

// Package boltcheck finds damage in the file of a bbolt database, without bbolt.
//
// Where pages are not what they should be, bbolt panics, reads memory that is not there, or follows
// pages in circles. Its own check, Tx.Check, does so too, in a goroutine of its own, where nobody
// can recover from a fault of memory. Of 55 damaged files it ended the process at one, did not end
// at another, and found nothing wrong with two (bbolt 1.5.0). This check reads the file page by
// page and trusts nothing in it. Call it after the database has been opened, so that no other
// process writes the file, and before anything is read from it.
package boltcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
)

// ErrDamaged says that a file is not as bbolt writes it.
var ErrDamaged = errors.New("damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// Guard calls do and makes an ErrDamaged of each fault that a damaged file can cause. Pages in a
// wrong form make bbolt panic, and missing pages make the memory that maps them fault.
func Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("%v", p)
		}
	}()
	return do()
}

// The format of a file, as go.etcd.io/bbolt/internal/common has it.
const (
	magic   = 0xED0CDAED
	version = 2

	headSize    = 16 // of a page: id, flags, count, overflow
	elementSize = 16
	bucketSize  = 16 // of the root and the sequence of a bucket
	metaSize    = 64
	checksumAt  = 56

	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	bucketFlag   = 0x01 // of an element
	noFreelist   = 1<<64 - 1
	manyFree     = 0xFFFF // a freelist with as many or more has their count as its first id

	minPage, maxPage = 1 << 10, 1 << 16
	// maxDepth is more than a tree or a nesting of buckets can have that anybody writes.
	maxDepth = 64
)

var order = binary.NativeEndian

// File returns an error of ErrDamaged if the file at path is damaged.
func File(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c := &check{f: f, size: info.Size()}
	if err := c.readMeta(); err != nil {
		return err
	}
	if err := c.bucket(c.root, 0); err != nil {
		return err
	}
	return c.freelist()
}

type check struct {
	f    *os.File
	size int64

	page           int64  // size of one
	pages          uint64 // that are in use or free
	root, freePage uint64
	seen           []bool // by page: it is part of a tree or of the freelist, or free
}

// readMeta takes the later one of the two meta pages that are valid.
func (c *check) readMeta() error {
	var latest uint64
	found := false
	for page := int64(minPage); page <= maxPage; page *= 2 {
		for _, at := range []int64{0, page} {
			b := make([]byte, metaSize)
			if _, err := c.f.ReadAt(b, at+headSize); err != nil {
				continue // the file is shorter
			}
			sum := fnv.New64a()
			_, _ = sum.Write(b[:checksumAt]) // a hash takes everything
			if order.Uint32(b) != magic || order.Uint32(b[4:]) != version || int64(order.Uint32(b[8:])) != page || order.Uint64(b[checksumAt:]) != sum.Sum64() {
				continue
			}
			if txid := order.Uint64(b[48:]); !found || txid > latest {
				found, latest = true, txid
				c.page, c.root, c.freePage, c.pages = page, order.Uint64(b[16:]), order.Uint64(b[32:]), order.Uint64(b[40:])
			}
		}
	}
	switch {
	case !found:
		return damaged("it has no valid meta page")
	case c.pages < 2 || c.pages > uint64(c.size/c.page):
		return damaged("its end is missing: it has %d bytes, and %d pages of %d", c.size, c.pages, c.page)
	}
	c.seen = make([]bool, c.pages)
	c.seen[0], c.seen[1] = true, true
	return nil
}

// take reads a page with those that overflow from it. Each page is taken once.
func (c *check) take(id uint64) ([]byte, error) {
	if id >= c.pages {
		return nil, damaged("page %d is beyond the last, %d", id, c.pages-1)
	}
	head := make([]byte, headSize)
	if _, err := c.f.ReadAt(head, int64(id)*c.page); err != nil {
		return nil, err
	}
	more := uint64(order.Uint32(head[12:]))
	switch {
	case order.Uint64(head) != id:
		return nil, damaged("page %d says that it is page %d", id, order.Uint64(head))
	case more >= c.pages-id:
		return nil, damaged("page %d overflows beyond the last, %d", id, c.pages-1)
	}
	for i := id; i <= id+more; i++ {
		if c.seen[i] {
			return nil, damaged("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	b := make([]byte, int64(more+1)*c.page)
	_, err := c.f.ReadAt(b, int64(id)*c.page)
	return b, err
}

func (c *check) bucket(root uint64, depth int) error { return c.tree(root, nil, nil, depth) }

// tree checks a page of a tree and all below it. Its keys begin with first, unless that is nil, and
// are below end, unless that is nil.
func (c *check) tree(id uint64, first, end []byte, depth int) error {
	if depth > maxDepth {
		return damaged("page %d is nested too deep", id)
	}
	b, err := c.take(id)
	if err != nil {
		return err
	}
	if order.Uint16(b[8:]) == branchFlag {
		return c.branch(id, b, first, end, depth)
	}
	if first != nil && order.Uint16(b[10:]) == 0 {
		return damaged("page %d is empty", id) // bbolt looks for a last key there for ever
	}
	return c.leaf(id, b, first, end, depth)
}

// keys returns the elements of a page by their keys, which rise within first and end.
func keys(id uint64, b []byte, flag uint16, posAt int, first, end []byte) ([][]byte, error) {
	count := int(order.Uint16(b[10:]))
	if got := order.Uint16(b[8:]); got != flag {
		return nil, damaged("page %d is of kind %#x, not %#x", id, got, flag)
	}
	if headSize+count*elementSize > len(b) {
		return nil, damaged("page %d has %d elements", id, count)
	}
	all := make([][]byte, count)
	for i := range all {
		at := headSize + i*elementSize
		from := uint64(at) + uint64(order.Uint32(b[at+posAt:]))
		to := from + uint64(order.Uint32(b[at+posAt+4:]))
		if to > uint64(len(b)) {
			return nil, damaged("element %d of page %d ends beyond it", i, id)
		}
		all[i] = b[from:to]
		switch {
		case i == 0 && first != nil && bytes.Compare(all[i], first) < 0, end != nil && bytes.Compare(all[i], end) >= 0,
			i > 0 && bytes.Compare(all[i], all[i-1]) <= 0:
			return nil, damaged("element %d of page %d is out of order", i, id)
		}
	}
	return all, nil
}

func (c *check) branch(id uint64, b, first, end []byte, depth int) error {
	all, err := keys(id, b, branchFlag, 0, first, end)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return damaged("page %d leads nowhere", id)
	}
	for i, key := range all {
		next := end
		if i+1 < len(all) {
			next = all[i+1]
		}
		if err := c.tree(order.Uint64(b[headSize+i*elementSize+8:]), key, next, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) leaf(id uint64, b, first, end []byte, depth int) error {
	all, err := keys(id, b, leafFlag, 4, first, end)
	if err != nil {
		return err
	}
	for i, key := range all {
		at := headSize + i*elementSize
		from := uint64(at) + uint64(order.Uint32(b[at+4:])) + uint64(len(key))
		to := from + uint64(order.Uint32(b[at+12:]))
		if to > uint64(len(b)) {
			return damaged("value %d of page %d ends beyond it", i, id)
		}
		if order.Uint32(b[at:])&bucketFlag == 0 {
			continue
		}
		value := b[from:to]
		if len(value) < bucketSize {
			return damaged("bucket %d of page %d has no root", i, id)
		}
		root := order.Uint64(value)
		switch {
		case root != 0:
			err = c.bucket(root, depth+1)
		case len(value) < bucketSize+headSize || depth > maxDepth:
			err = damaged("bucket %d of page %d is not whole", i, id)
		default: // its only page is its value
			err = c.leaf(id, value[bucketSize:], nil, nil, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freelist checks that each page is either in use or free.
func (c *check) freelist() error {
	if c.freePage == noFreelist {
		return nil // bbolt finds out what is free
	}
	b, err := c.take(c.freePage)
	if err != nil {
		return err
	}
	if order.Uint16(b[8:]) != freelistFlag {
		return damaged("page %d is no freelist", c.freePage)
	}
	ids, count := b[headSize:], uint64(order.Uint16(b[10:]))
	if count == manyFree {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("the freelist has %d pages", count)
	}
	for i := range count {
		id := order.Uint64(ids[8*i:])
		if id >= c.pages || c.seen[id] {
			return damaged("page %d is free and used, or free twice", id)
		}
		c.seen[id] = true
	}
	for id, seen := range c.seen {
		if !seen {
			return damaged("page %d is neither used nor free", id)
		}
	}
	return nil
}
