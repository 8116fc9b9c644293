// SPDX-License-Identifier: Apache-2.0

package main

// The rows that the doors of the proxy and of the embedded broker have in common.

// certificateSettings are those of what a door shows who speaks TLS, below the section at.
func certificateSettings(at string) []*setting {
	return []*setting{
		{path: at + ".certFile", kind: kindString,
			help: "A certificate of your own, in PEM, with its chain. It is read again when it has been replaced."},
		{path: at + ".keyFile", kind: kindString,
			help: "The key of the certificate, in PEM."},
		{path: at + ".hosts", kind: kindStrings,
			help: "Further names and addresses that the certificate which Overdue makes itself is for, separated by commas; localhost always is."},
		{path: at + ".directory", kind: kindString, defNote: "a folder of the user's cache",
			help: "Where the certificate that Overdue makes itself is kept."},
	}
}

// keySettings are those of the elements of the list of keys at.
func keySettings(at string) []*setting {
	return []*setting{
		{path: at + "[].name", kind: kindString, need: true,
			help: "The SharedAccessKeyName."},
		{path: at + "[].key", kind: kindString, secret: true,
			help: "The SharedAccessKey, of at least 12 characters."},
		{path: at + "[].keyFile", kind: kindString,
			help: "A file that holds the key. Give one of the two."},
		{path: at + "[].send", kind: kindBool, def: "false",
			help: "Whether the key is good for sending."},
		{path: at + "[].listen", kind: kindBool, def: "false",
			help: "Whether the key is good for receiving."},
		{path: at + "[].manage", kind: kindBool, def: "false",
			help: "Whether the key is good for everything, administration included."},
	}
}
