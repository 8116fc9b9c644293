// SPDX-License-Identifier: Apache-2.0

//go:build linux || freebsd || netbsd || dragonfly

package socket

import (
	"syscall"
	"unsafe"
)

// supported says that system calls can be made without Go's scheduler.
const supported = true

// sysRead reads the available bytes. The socket does not block.
func sysRead(fd uintptr, b []byte) (int, syscall.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd,
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// sysWrite returns how many bytes the socket has taken.
func sysWrite(fd uintptr, b []byte) int {
	if len(b) == 0 {
		return 0
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0
	}
	return int(n)
}
