// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// docsBase is the address below which this release has its pages, such as
// https://example.com/overdue/v1.0.0. The linker sets it; see the Makefile.
var docsBase = ""

// page is one as texts name it, by its path in the repository.
var page = regexp.MustCompile(`(^|[\s(])(docs/[\w/-]+\.md)`)

// Doc returns text with an absolute address in place of each page of the documentation that it
// names, such as docs/operate/rights.md#the-doctor. Without docsBase these are the files of the
// package that this program was installed from. If there are none, text stays as it is.
func Doc(text string) string { return link(text, docsBase, packagedDocs()) }

func link(text, base, packaged string) string {
	if base == "" {
		base = packaged
	}
	if base == "" {
		return text
	}
	return page.ReplaceAllString(text, "${1}"+strings.ReplaceAll(strings.TrimSuffix(base, "/"), "$", "$$")+"/${2}")
}

// DocURL is the address of a page for readers elsewhere, as those of alerts, or "" if there is none.
func DocURL(page string) string {
	if docsBase == "" {
		return ""
	}
	return Doc(page)
}

// packagedDocs is the folder in which a package has put the pages beside this program, or "".
var packagedDocs = sync.OnceValue(func() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	return docsBeside(program)
})

// docsBeside is where the pages are if a program is installed: /usr/share/doc/overdue for
// /usr/bin/overdue.
func docsBeside(program string) string {
	folder := filepath.Join(filepath.Dir(filepath.Dir(program)), "share", "doc", "overdue")
	if _, err := os.Stat(filepath.Join(folder, "docs")); err != nil {
		return ""
	}
	return folder
}
