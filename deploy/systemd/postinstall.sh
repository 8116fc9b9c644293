#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An upgrade restarts the service if it runs; the first installation starts nothing, as its configuration has to be written.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart overdue.service
fi
