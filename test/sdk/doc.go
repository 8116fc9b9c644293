// SPDX-License-Identifier: Apache-2.0

// Package sdk puts the embedded broker before the JavaScript, Python and Java SDKs as they are
// published. The folders js, python and java hold one program each, which goes through its
// scenarios with a namespace given by a connection string. The test starts a namespace for each and
// reports every scenario as a subtest.
//
// The suites of examples/testing run too, one for each SDK and one in Go, each with a broker that it
// starts itself.
//
// The apps in steady go on while the network and a sidecar fail, those in killed while a broker on a
// directory is killed again and again.
//
// `make sdks` installs what the programs need, install.sh says where.
package sdk
