// SPDX-License-Identifier: Apache-2.0

package config

// The rows that the endpoints of the proxy and of the embedded broker have in common.

// certificateSettings are those of what an endpoint shows who speaks TLS, below the section at.
func certificateSettings(at string) []*Setting {
	return []*Setting{
		{Path: at + ".certFile", Kind: kindFile,
			Help: "A certificate of your own, in PEM, with its chain. It is read again when it has been replaced."},
		{Path: at + ".keyFile", Kind: kindFile,
			Help: "The key of the certificate, in PEM."},
		{Path: at + ".hosts", Kind: kindStrings,
			Help: "Further names and addresses for Overdue's own certificate, separated by commas; localhost is always included."},
		{Path: at + ".directory", Kind: kindFile, DefaultNote: "a folder of the user's cache",
			Help: "Where Overdue keeps its own certificate."},
	}
}

// keySettings are those of the elements of the list of keys at.
func keySettings(at string) []*Setting {
	return []*Setting{
		{Path: at + "[].name", Kind: kindString, need: true,
			Help: "The SharedAccessKeyName."},
		{Path: at + "[].key", Kind: kindString, secret: true,
			Help: "The SharedAccessKey, of at least 12 characters."},
		{Path: at + "[].keyFile", Kind: kindFile,
			Help: "A file that holds the key. Give one of the two."},
		{Path: at + "[].send", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for sending."},
		{Path: at + "[].listen", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for receiving."},
		{Path: at + "[].manage", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for everything, administration included."},
	}
}
