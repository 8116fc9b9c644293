// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDirectoryOfTheEmbeddedBrokerIsExamined(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		severity Severity
		summary  string
	}{
		filepath.Join(dir, "data"):         {OK, "data is not there yet; a start makes it."},
		t.TempDir():                        {OK, " is empty."},
		dir:                                {Error, " has files of something else (photo.jpg); choose an empty directory, or one that Overdue has written."},
		filepath.Join(dir, "a/b"):          {Error, "a/b cannot be made because "},
		filepath.Join(dir, "photo.jpg/db"): {Error, "is a file or lies below one; choose a directory."},
	} {
		found := ExamineOthers(t.Context(), Config{BrokerDirectory: path}).Findings
		if len(found) == 0 || found[0].Severity != want.severity || !strings.Contains(found[0].Summary, want.summary) {
			t.Errorf("%s: %+v, want %v with %q", path, found, want.severity, want.summary)
		}
		if room := len(found) == 2 && strings.Contains(found[1].Summary, "MiB of room"); room != (want.severity == OK) {
			t.Errorf("%s: %+v, want its room unless it cannot be used", path, found)
		}
	}
	if found := ExamineOthers(t.Context(), Config{}).Findings; len(found) > 0 {
		t.Errorf("without a directory: %+v", found)
	}
}
