#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
