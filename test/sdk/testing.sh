#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
#   testing.sh LANGUAGE INSTALLED SCRATCH
#
# Runs the suite of examples/testing in a language. INSTALLED is the folder of install.sh, SCRATCH an empty one. The suite takes
# overdue from the PATH, or the broker at BROKER_ADDRESS.
set -eu
language=$1 installed=$2 scratch=$3
suites=$(cd "$(dirname "$0")/../../examples/testing" && pwd)

# Programs in Java end within seconds. So neither the compiler of hot code nor a collector with threads of its own pays off.
fast='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'

case $language in
go)
	cd "$suites/go"
	go test -vet=off -count=1 -v -tags example .
	;;
js)
	cp -r "$suites/Config.json" "$suites/js" "$scratch"
	ln -s "$installed/node_modules" "$scratch/node_modules"
	cd "$scratch/js"
	node --test orders.test.mjs
	;;
python)
	cd "$suites/python"
	"$installed/bin/python" -B -m unittest -v test_orders
	;;
java)
	cd "$suites/java"
	javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -nowarn -proc:none -cp "$installed/*" -d "$scratch" ./*.java
	java $fast -cp "$installed/*:$scratch" org.junit.platform.console.ConsoleLauncher execute --select-class OrdersTest --disable-banner
	;;
esac
