#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the scenarios need, and the tests in test/foreign and test/web, of Redis and of `overdue bench send`, and prints the
# folders it is in, one `NAME=FOLDER` per line.
# Each folder is named after what it was made from, so an install that is there is left alone.
#
#   install.sh          fails when a tool is missing
#   install.sh --tools  installs missing tools first: Debian packages, as root
#   install.sh --tools postgresql  the same, and PostgreSQL, which only `make peers` needs
set -euo pipefail
cd "$(dirname "$0")"

# What each tool is in, in Debian.
missing() {
	command -v gcc >/dev/null || echo gcc # the race detector links with it
	[ -e /usr/include/stdlib.h ] || echo libc6-dev
	command -v node >/dev/null || echo nodejs
	command -v npm >/dev/null || echo npm
	command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
	/usr/bin/python3 -c 'import proton' 2>/dev/null || echo python3-qpid-proton
	command -v prometheus >/dev/null && command -v promtool >/dev/null || echo prometheus
	command -v prometheus-alertmanager >/dev/null || echo prometheus-alertmanager
	command -v redis-server >/dev/null || echo redis-server
	command -v haproxy >/dev/null || echo haproxy
	command -v mvn >/dev/null || echo maven
	# The tests of the dashboard show it, and take pictures of it.
	command -v chromium >/dev/null || echo chromium
	[ -e /usr/share/fonts/opentype/inter ] || echo fonts-inter
	# The tests of a release install its packages.
	command -v systemd-analyze >/dev/null || echo systemd
	command -v rpm >/dev/null || echo rpm
	[ "${2:-}" != postgresql ] || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || echo postgresql
	command -v javac >/dev/null || echo default-jdk-headless
	command -v erl >/dev/null || echo erlang-base
	local lib
	for lib in crypto eldap inets mnesia os_mon parsetools public_key runtime_tools ssl syntax_tools tools xmerl; do
		compgen -G "/usr/lib/erlang/lib/$lib-*" >/dev/null || echo "erlang-${lib//_/-}"
	done
}

# The servers among the packages are for tests, which start and stop their own. The script at this path decides whether a
# package may start a service while it is installed; 101 says no.
policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}

# without_services COMMAND… runs an installation that starts no service. What is at the path comes back afterwards.
without_services() (
	kept=
	if [ -e "$policy" ]; then
		kept=$policy.before-overdue
		mv "$policy" "$kept"
	fi
	restore() { if [ -n "$kept" ]; then mv "$kept" "$policy"; else rm -f "$policy"; fi; }
	trap restore EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	"$@"
)

# disable_services keeps the servers that were installed just now from starting with the machine.
disable_services() {
	local package
	for package in redis-server prometheus prometheus-alertmanager haproxy postgresql; do
		[[ " $* " != *" $package "* ]] || ! command -v systemctl >/dev/null || systemctl disable --quiet "$package"
	done
}

packages=$(missing "$@" | tr '\n' ' ')
if [ -n "$packages" ] && [ "${1:-}" = --tools ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	{
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive without_services apt-get install -y -qq --no-install-recommends $packages
		disable_services $packages
	} >&2
	packages=$(missing "$@" | tr '\n' ' ')
fi
if [ -n "$packages" ]; then
	echo "the tests with SDKs and brokers of others need what is in these Debian packages: ${packages% }; 'make sdks' installs them when run as root" >&2
	exit 1
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/overdue/sdk
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

# folder NAME FILE… prints where NAME goes, and what it went into when it is complete already.
folder() {
	local name=$1
	shift
	echo "$cache/$name-$(cat "$@" | sha256sum | cut -c1-16)"
}

js=$(folder js js/package.json js/package-lock.json)
if [ ! -e "$js/complete" ]; then
	rm -rf "$js" && mkdir -p "$js"
	cp js/package.json js/package-lock.json "$js"
	(cd "$js" && timeout 180 npm ci --no-audit --no-fund --loglevel=error) >&2
	touch "$js/complete"
fi

python=$(folder "python-$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')" python/requirements.txt)
if [ ! -e "$python/complete" ]; then
	rm -rf "$python" && python3 -m venv "$python" >&2
	timeout 180 "$python/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r python/requirements.txt >&2
	touch "$python/complete"
fi

# The pages of the examples make environments of their own.
wheels=$(folder "wheels-$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')" python/requirements.txt)
if [ ! -e "$wheels/complete" ]; then
	rm -rf "$wheels" && mkdir -p "$wheels"
	timeout 180 "$python/bin/pip" download --quiet --disable-pip-version-check --only-binary :all: --dest "$wheels" -r python/requirements.txt >&2
	touch "$wheels/complete"
fi

# Maven runs for some seconds, too short for the compiler of hot code and a collector with threads of its own.
export MAVEN_OPTS=${MAVEN_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}

java=$(folder java java/pom.xml)
if [ ! -e "$java/complete" ]; then
	rm -rf "$java" && mkdir -p "$java"
	timeout 240 mvn -q -B -ntp -f java/pom.xml dependency:copy-dependencies -DoutputDirectory="$java" >&2
	touch "$java/complete"
fi

# RabbitMQ is unpacked, not installed: its package would start a broker for the whole machine.
rabbitmq=$cache/rabbitmq-$(. /etc/os-release && echo "$ID-$VERSION_ID")
if [ ! -e "$rabbitmq/complete" ]; then
	rm -rf "$rabbitmq" && mkdir -p "$rabbitmq/download"
	if [ -z "$(apt-cache search --names-only '^rabbitmq-server$')" ] && [ "${1:-}" = --tools ] && [ "$(id -u)" = 0 ]; then
		apt-get update -qq >&2
	fi
	(cd "$rabbitmq/download" && timeout 180 apt-get download -qq rabbitmq-server && dpkg -x ./*.deb ..) >&2
	rm -r "$rabbitmq/download"
	touch "$rabbitmq/complete"
fi

echo "js=$js"
echo "python=$python"
echo "java=$java"
echo "wheels=$wheels"
echo "rabbitmq=$(echo "$rabbitmq"/usr/lib/rabbitmq/lib/rabbitmq_server-*)"
