// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestADelayedLinkPassesEverythingOnAndEndsWithItsEnds(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // says all back, until its client has said all
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // the client sees what is missing
			_ = c.Close()
		}
	}()
	w, err := New(far.Addr().String(), 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", w.Address())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	said := strings.Repeat("all that is said ", 10_000)
	go func() { _, _ = io.WriteString(c, said) }() // what fails is missing
	back := make([]byte, len(said))
	if _, err := io.ReadFull(c, back); err != nil || string(back) != said {
		t.Fatalf("%d bytes came back, %v, want all %d as they were said", len(back), err, len(said))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// One that is open ends with the wire.
	c = dial()
	defer c.Close()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back[:1]); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if n, err := c.Read(back); err == nil {
		t.Errorf("%d bytes over a link that is closed, want an end", n)
	}
}
