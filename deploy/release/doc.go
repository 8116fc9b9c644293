// SPDX-License-Identifier: Apache-2.0

// Command release makes the artefacts of a release of Overdue from a checkout: archives, deb and
// rpm packages, an OCI image, software bills of materials, licence notices and checksums.
//
// The same commit gives the same bytes on every machine with the same Go: each file has the time
// of the commit, lists are sorted, and no path of the machine gets into the output. It is a module
// of its own, so that the program's go.mod lists what ships and nothing else.
package main
