#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dpkg passes "remove", rpm the number of versions that stay; an upgrade leaves the service running.
set -e
case "${1:-}" in remove | 0) ;; *) exit 0 ;; esac
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl disable --now overdue.service
fi
