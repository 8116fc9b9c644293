// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import "syscall"

func writeSocket(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
