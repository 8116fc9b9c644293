// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"overdue/internal/config"
)

// listen opens the address of a setting. Its errors say how to change it.
func listen(c *config.Config, key, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	s := config.SettingAt(key)
	ways := fmt.Sprintf("%s or %s in the configuration file", s.Env(), key)
	if s.Flag != "" {
		ways = "--" + s.Flag + ", " + ways
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process; stop that one, or choose another port with %s", c.At(key), addr, ways)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s; choose a port above 1023 with %s", c.At(key), addr, ways)
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address with %s", c.At(key), addr, err, ways)
}
