// SPDX-License-Identifier: Apache-2.0

package pipenet

import "net"

// InPieces is nc, read in pieces of at most n bytes within the first 8 KiB of every 64 KiB. So a
// short transfer comes all in pieces; the rest of a payload has no seams for pieces to fall on.
func InPieces(nc net.Conn, n int) net.Conn { return &inPieces{Conn: nc, n: n} }

type inPieces struct {
	net.Conn
	n    int
	came int
}

func (c *inPieces) Read(p []byte) (int, error) {
	const every, cut = 64 << 10, 8 << 10
	if at := c.came % every; at < cut {
		p = p[:min(len(p), c.n)]
	} else {
		p = p[:min(len(p), every-at)]
	}
	n, err := c.Conn.Read(p)
	c.came += n
	return n, err
}
