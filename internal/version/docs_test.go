// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPagesAreNamedByTheirAddress(t *testing.T) {
	const text = "see docs/operate/rights.md#the-doctor, or (docs/broker/README.md) and https://a/docs/start/tour.md"
	for _, c := range []struct{ base, packaged, want string }{
		{"", "", text},
		{"", "/usr/share/doc/overdue", "see /usr/share/doc/overdue/docs/operate/rights.md#the-doctor, or (/usr/share/doc/overdue/docs/broker/README.md) and https://a/docs/start/tour.md"},
		{"https://example.com/v1/", "/usr/share/doc/overdue", "see https://example.com/v1/docs/operate/rights.md#the-doctor, or (https://example.com/v1/docs/broker/README.md) and https://a/docs/start/tour.md"},
		{"https://example.com/$1", "", "see https://example.com/$1/docs/operate/rights.md#the-doctor, or (https://example.com/$1/docs/broker/README.md) and https://a/docs/start/tour.md"},
	} {
		if got := link(text, c.base, c.packaged); got != c.want {
			t.Errorf("with %q and %q:\n%s\nwant\n%s", c.base, c.packaged, got, c.want)
		}
	}
}

func TestOnlyAReleaseWithAnAddressLinksItsPagesFromElsewhere(t *testing.T) {
	const page = "docs/operate/troubleshoot.md#overduedeadlinemissed"
	if got := DocURL(page); got != "" {
		t.Errorf("without an address the link is %q, want none", got)
	}
	docsBase = "https://example.com/v1"
	t.Cleanup(func() { docsBase = "" })
	if got, want := DocURL(page), docsBase+"/"+page; got != want {
		t.Errorf("the link is %q, want %q", got, want)
	}
}

func TestThePagesOfAPackageAreFoundBesideItsProgram(t *testing.T) {
	prefix := t.TempDir()
	program := filepath.Join(prefix, "bin", "overdue")
	if got := docsBeside(program); got != "" {
		t.Errorf("without a package the pages are in %q, want none", got)
	}
	folder := filepath.Join(prefix, "share", "doc", "overdue")
	if err := os.MkdirAll(filepath.Join(folder, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := docsBeside(program); got != folder {
		t.Errorf("the pages are in %q, want %q", got, folder)
	}
}
