// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"errors"
	"net"
)

// IsTimeout reports whether err says that a deadline of a connection has passed.
func IsTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
