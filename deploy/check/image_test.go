// SPDX-License-Identifier: Apache-2.0

package check

import (
	"compress/gzip"
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// These tests have no engine to build the image with. They check that the Dockerfile builds the
// binary as `make build` does, and that the binary is static. The log has its size; the image adds
// some 220 KiB of certificates.
func TestTheImageHoldsAStaticBinary(t *testing.T) {
	m := makeBuild.FindStringSubmatch(read(t, "../../Makefile"))
	if m == nil {
		t.Fatal("the Makefile builds the program in another way than this test knows")
	}
	if make, docker := strings.ReplaceAll(m[1], "$(VERSION)", "$VERSION"), dockerBuild.FindStringSubmatch(read(t, "../../Dockerfile"))[1]; make != docker {
		t.Errorf("make runs go %s\nthe Dockerfile go %s", make, docker)
	}
	binary := program(t)
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var pulled counter
	z := gzip.NewWriter(&pulled)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the binary has %.1f MiB, %.1f to pull", float64(len(text))/(1<<20), float64(pulled)/(1<<20))
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatalf("the image is for Linux, and this machine does not build for it: %v", err)
	}
	defer file.Close()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the binary wants a dynamic loader, which the image does not have")
	}
}

// A counter counts what is written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

var stage = regexp.MustCompile(`(?m)^FROM `)

func TestTheDockerfileIsOneThatBuilds(t *testing.T) {
	text := read(t, "../../Dockerfile")
	stages := stage.Split(text, -1)[1:]
	if len(stages) != 2 || !strings.HasPrefix(stages[0], "--platform=$BUILDPLATFORM golang:") || !strings.HasPrefix(stages[1], "scratch\n") {
		t.Fatalf("%d stages, want one that builds on the builder's platform, and scratch", len(stages))
	}
	version := regexp.MustCompile(`golang:([0-9.]+)`).FindStringSubmatch(stages[0])[1]
	if want := regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`).FindStringSubmatch(read(t, "../../go.mod"))[1]; version != want {
		t.Errorf("the image is built with Go %s, go.mod says %s", version, want)
	}
	ignored := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(t, "../../.dockerignore"), ""))
	for _, m := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(stages[0], -1) {
		for _, source := range strings.Fields(m[1]) {
			if _, err := os.Stat(filepath.Join("../..", source)); err != nil || slices.Contains(ignored, source) {
				t.Errorf("COPY %s: it is not there, or .dockerignore keeps it out: %v", source, err)
			}
		}
	}
	for _, folder := range []string{"cmd", "internal", "proxy", "scheduler", "monitor", "alert", "go.mod", "go.sum"} {
		if slices.Contains(ignored, folder) {
			t.Errorf(".dockerignore keeps out %s, which the build needs", folder)
		}
	}
	if !slices.Contains(ignored, ".git") {
		t.Error(".dockerignore lets .git in")
	}
	last := stages[1]
	made := "--from=build "
	for _, m := range regexp.MustCompile(`(?m)^COPY --from=build (?:--chown=\S+ )?(\S+) \S+$`).FindAllStringSubmatch(last, -1) {
		if !strings.Contains(stages[0], m[1]) && m[1] != "/etc/ssl/certs/ca-certificates.crt" { // which the image of Go has
			t.Errorf("COPY %s%s, which the first stage does not make", made, m[1])
		}
	}
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(last)
	if user == nil || user[1] == "0" || !strings.Contains(last, "--chown="+user[1]+":"+user[2]+" /out/data ") {
		t.Errorf("USER is %v; want a number that is not 0, to whom the data folder belongs", user)
	}
	for _, want := range []string{"ENV HOME=/var/lib/overdue OVERDUE_UNATTENDED=true\n", `ENTRYPOINT ["/overdue"]`, `CMD ["/overdue", "healthcheck"]`, "COPY --from=build /out/overdue /overdue"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last stage lacks %s", want)
		}
	}
	for _, label := range []string{"title", "description", "licenses", "version"} {
		if !strings.Contains(last, "org.opencontainers.image."+label+"=") {
			t.Errorf("the image has no label %s", label)
		}
	}
	checkCommand(t, "HEALTHCHECK", []string{"healthcheck"}, nil)
	checkCommand(t, "CMD", []string{regexp.MustCompile(`(?m)^CMD \["(\w+)"\]$`).FindStringSubmatch(last)[1]}, nil)
}
