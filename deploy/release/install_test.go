// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The tests of this file install what this machine can install. They need root, for chroot and
// mounts, and fail without it.

func TestTheArchiveRuns(t *testing.T) {
	folder := t.TempDir()
	command(t, "tar", "-xzf", artefact(t, ".tar.gz"), "-C", folder)
	root := filepath.Join(folder, "overdue_"+testVersion+"_"+runtime.GOOS+"_"+runtime.GOARCH)
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", noticesFile, "overdue.example.yaml", "man/overdue.1", "man/overdue-run.1",
		"completion/overdue.bash", "completion/_overdue", "completion/overdue.fish", "completion/overdue.ps1", "deploy/systemd/overdue.service"} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, want a file with content", name, err)
		}
	}
	command(t, "bash", "-n", filepath.Join(root, "completion/overdue.bash"))
	runs(t, filepath.Join(root, "overdue"))
}

func TestTheDebInstallsAndRuns(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	status := filepath.Join(root, "var/lib/dpkg/status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// The scripts of the package run outside of the root, which has no shell.
	dpkg := []string{"dpkg", "--root=" + root, "--force-script-chrootless", "--force-architecture"}
	out, err := exec.CommandContext(t.Context(), dpkg[0], append(dpkg[1:], "--install", artefact(t, ".deb"))...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "overdue depends on ca-certificates") {
		t.Errorf("installed without ca-certificates: %v\n%s", err, out)
	}
	const certificates = "Package: ca-certificates\nStatus: install ok installed\nVersion: 1\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: test\n"
	if err := os.WriteFile(status, []byte(certificates), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, append(dpkg, "--install", artefact(t, ".deb"))...)
	if homepage := command(t, "dpkg-deb", "--field", artefact(t, ".deb"), "Homepage"); homepage != testDocs+"\n" {
		t.Errorf("homepage %q, want %q", homepage, testDocs)
	}
	checkPages(t, root)
	if out := command(t, append(dpkg, "--verify", "overdue")...); out != "" {
		t.Errorf("dpkg --verify finds changes: %s", out)
	}
	runs(t, "chroot", root, "/usr/bin/overdue")
	command(t, "chroot", root, "/usr/bin/overdue", "config", "check", "--config", "/etc/overdue/overdue.yaml", "--namespace", "contoso.servicebus.windows.net")
	checkUnit(t, root)
	checkService(t, root)

	// A configuration that somebody wrote stays, through an upgrade and a removal.
	config := filepath.Join(root, "etc/overdue/overdue.yaml")
	if err := os.WriteFile(config, []byte("monitorQueue: mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, append(dpkg, "--install", artefact(t, ".deb"))...)
	command(t, append(dpkg, "--remove", "overdue")...)
	if text, err := os.ReadFile(config); err != nil || string(text) != "monitorQueue: mine\n" {
		t.Errorf("the configuration after an upgrade and a removal: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/bin/overdue")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the binary after a removal: %v, want none", err)
	}
	command(t, append(dpkg, "--purge", "overdue")...)
}

func TestTheRPMInstallsAndRuns(t *testing.T) {
	root := t.TempDir()
	const database = "/var/lib/rpm"
	rpm := []string{"rpm", "--root", root, "--dbpath", database}
	// Scripts would run inside of the root, which has no shell.
	command(t, append(rpm, "--install", "--nodeps", "--noscripts", artefact(t, ".rpm"))...)
	command(t, append(rpm, "--verify", "--nodeps", "overdue")...)
	runs(t, "chroot", root, "/usr/bin/overdue")
	checkUnit(t, root)
	// Both packages have the same files.
	other := t.TempDir()
	command(t, "dpkg", "-x", artefact(t, ".deb"), other)
	var lists [2][]string
	for i, folder := range []string{root, other} {
		err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			inside := strings.TrimPrefix(path, folder)
			if err == nil && !d.IsDir() && !strings.HasPrefix(inside, database+"/") {
				lists[i] = append(lists[i], inside)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(lists[0], lists[1]) || len(lists[0]) < 20 {
		t.Errorf("the rpm has %q, the deb %q", lists[0], lists[1])
	}
}

// checkPages checks that the pages below root are those of the checkout, and that help and man
// pages link them where they are published.
func checkPages(t *testing.T, root string) {
	t.Helper()
	const page = "docs/broker/README.md"
	want, err := os.ReadFile(filepath.Join(checkout, page))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, docFolder, page)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s of the package has %d bytes, want %d (%v)", page, len(got), len(want), err)
	}
	help := command(t, "chroot", root, "/usr/bin/overdue", "broker", "--help")
	manual, err := os.ReadFile(filepath.Join(root, "usr/share/man/man1/overdue-broker.1"))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"help": help, "the man page": string(manual)} {
		if !strings.Contains(text, testDocs+"/"+page) {
			t.Errorf("%s does not link %s/%s:\n%s", what, testDocs, page, text)
		}
	}
}

// checkUnit checks the systemd unit below root: it is valid, and it exposes little.
func checkUnit(t *testing.T, root string) {
	t.Helper()
	unit := filepath.Join(root, "usr/lib/systemd/system/overdue.service")
	// 20 stands for an exposure of 2.0.
	command(t, "systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit)
	// systemd-analyze looks for the binary on this machine, so it gets the path below root.
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "overdue.service")
	if err := os.WriteFile(moved, []byte(strings.ReplaceAll(string(text), "/usr/bin/overdue", root+"/usr/bin/overdue")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := command(t, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", moved); strings.Contains(out, "overdue.service") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
}

// checkService runs what the unit below root starts, as systemd would. A wrong configuration and a
// missing namespace are exit code 2, after which the unit does not restart; nothing before it may
// fail, for which that does not hold.
func checkService(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/overdue.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			unit[key] = append(unit[key], value)
		}
	}
	if len(unit["ExecStartPre"])+len(unit["ExecCondition"]) > 0 || !slices.Equal(unit["RestartPreventExitStatus"], []string{"2"}) {
		t.Errorf("before the start %q, no restart after %q; want nothing, and exit code 2", unit["ExecStartPre"], unit["RestartPreventExitStatus"])
	}
	file := filepath.Join(root, "etc/overdue/overdue.yaml")
	shipped, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(shipped):                        "no namespace is given",
		"monitorQueue: mine\n":                 "no namespace is given", // of a release that had no such setting
		"broker: {queues: [{name: orders}]}\n": "no namespace is given",
		"lisen: {}\n":                          "lisen is not a known key",
		"alerts: [{slack: {url: \"http://x\"}, title: \"{{\"}]\nbroker: {enabled: true}\n": "alerts[0].title",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "chroot", append([]string{root}, strings.Fields(unit["ExecStart"][0])...)...)
		cmd.Env = append(unit["Environment"], freePorts(t)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("with %q: %v, want exit code 2 and %q:\n%s", text, err, want, out)
		}
	}
	if err := os.WriteFile(file, shipped, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheImageRunsReadOnlyAndWithoutRoot(t *testing.T) {
	index, _ := pushed(t)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if full && len(manifest.Manifests) != 2 {
		t.Errorf("the image has %d platforms, want 2", len(manifest.Manifests))
	}
	ran := false
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config := checkConfig(t, img, m.Platform)
		if m.Platform.Architecture == runtime.GOARCH {
			ran = true
			inImage(t, img, config)
		}
	}
	if !ran {
		t.Errorf("the image has no platform of this machine: %v", manifest.Manifests)
	}
}

func TestAnEngineLoadsTheImageOfTheRegistry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overdue.tar")
	err := run(t.Context(), []string{
		"image", "-binaries", filepath.Join(release(t).folder, "bin/release"), "-loadable", file, "-name", "overdue:test",
		"-version", testVersion, "-commit", release(t).commit, "-time", fmt.Sprint(testTime),
	})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("overdue:test")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := loaded.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	index, _ := pushed(t)
	if want, err := firstOf(t, index).ConfigName(); err != nil || got != want {
		t.Errorf("the image for engines is %v, that of the registry %v, %v", got, want, err)
	}
}

// Both images have the same files: they differ in how an engine runs them.
func TestTheEmulatorsImageHasTheSameLayer(t *testing.T) {
	index, emulator := pushed(t)
	if err := validate.Index(emulator); err != nil {
		t.Error(err)
	}
	ours, theirs := firstOf(t, index), firstOf(t, emulator)
	layers, err := ours.Layers()
	if err != nil {
		t.Fatal(err)
	}
	same, err := theirs.Layers()
	if err != nil || len(layers) != 1 || len(same) != 1 {
		t.Fatalf("%d and %d layers, %v, want one each", len(layers), len(same), err)
	}
	want, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := same[0].Digest(); err != nil || got != want {
		t.Errorf("the layer of the emulator's image is %v, %v, want %v", got, err, want)
	}
	config, err := theirs.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if !slices.Equal(c.Entrypoint, []string{"/overdue", "emulator"}) || len(c.Cmd) > 0 || slices.Contains(c.Env, "OVERDUE_UNATTENDED=true") {
		t.Errorf("it runs %q %q with %q, want /overdue emulator, and that the broker needs no asking for", c.Entrypoint, c.Cmd, c.Env)
	}
	for _, port := range []string{"5672/tcp", "5300/tcp"} {
		if _, there := c.ExposedPorts[port]; !there {
			t.Errorf("it does not expose %s: %v", port, c.ExposedPorts)
		}
	}
}

func firstOf(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	first, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// pushed are the images that `make push` has put into a registry.
func pushed(t *testing.T) (index, emulator v1.ImageIndex) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	image := strings.TrimPrefix(server.URL, "http://") + "/overdue:" + testVersion
	command(t, "make", "-C", release(t).folder, "push", "IMAGE="+image)
	var both [2]v1.ImageIndex
	for i, suffix := range []string{"", emulatorSuffix} {
		ref, err := name.ParseReference(image + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if both[i], err = remote.Index(ref); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

func checkConfig(t *testing.T, img v1.Image, p *v1.Platform) *v1.ConfigFile {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != p.OS || config.Architecture != p.Architecture || config.Config.User != "65532:65532" {
		t.Errorf("%v: the configuration says %s/%s, user %q", p, config.OS, config.Architecture, config.Config.User)
	}
	for label, want := range map[string]string{
		"org.opencontainers.image.version": testVersion, "org.opencontainers.image.revision": release(t).commit, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created": time.Unix(testTime, 0).UTC().Format(time.RFC3339),
	} {
		if config.Config.Labels[label] != want {
			t.Errorf("%v: label %s is %q, want %q", p, label, config.Config.Labels[label], want)
		}
	}
	return config
}

// inImage runs the command of the image in its root file system, mounted read-only.
func inImage(t *testing.T, img v1.Image, config *v1.ConfigFile) {
	t.Helper()
	root := t.TempDir()
	content := mutate.Extract(img)
	cmd := exec.CommandContext(t.Context(), "tar", "-xp", "-C", root)
	cmd.Stdin = content
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	// The image that users pull has its licences and its bill of materials, those of the archive.
	unpacked, _ := inArchive(t)
	for name, want := range map[string]string{
		"LICENSE":     filepath.Join(unpacked, "LICENSE"),
		noticesFile:   filepath.Join(unpacked, noticesFile),
		materialsFile: artefact(t, ".cdx.json"),
	} {
		got, err := os.ReadFile(filepath.Join(root, docFolder, name))
		if err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(want); err != nil || !bytes.Equal(got, text) || len(got) == 0 {
			t.Errorf("%s of the image has %d bytes, %s %d (%v), want the same", name, len(got), want, len(text), err)
		}
	}
	// A container mounts /dev; the program needs none of it.
	mounted := `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec chroot "$@"`
	runs(t, "unshare", "--mount", "sh", "-ec", mounted, "sh", root, "--userspec="+config.Config.User, root, config.Config.Entrypoint[0])
	image := []string{"--mount", "sh", "-ec", mounted, "sh", root, "--userspec=" + config.Config.User, root, config.Config.Entrypoint[0]}
	out, err := exec.CommandContext(t.Context(), "unshare", append(image, "config", "check", "--config", "/missing.yaml")...).CombinedOutput()
	if err == nil {
		t.Errorf("a configuration that is missing: %s, want an error", out)
	}
	// The command of the image itself does not fall back to the embedded broker.
	run := exec.CommandContext(t.Context(), "unshare", append(image, config.Config.Cmd...)...)
	run.Env = append(append(os.Environ(), config.Config.Env...), freePorts(t)...)
	run.Env = append(run.Env, "PATH="+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "no namespace is given") {
		t.Errorf("the image's command without a namespace: %v, want an error that says so:\n%s", err, out)
	}
}

// command runs one and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// runs starts the program at the end of args on free ports, waits until it says that it is ready,
// and stops it. The version has to be that of the release.
func runs(t *testing.T, args ...string) {
	t.Helper()
	version := command(t, append(slices.Clone(args), "version")...)
	if want := "overdue v" + testVersion + ", commit " + release(t).commit + ", "; !strings.HasPrefix(version, want) {
		t.Errorf("version %q, want it to begin with %q", version, want)
	}
	env := append(os.Environ(), freePorts(t)...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var printed strings.Builder
	server := exec.CommandContext(ctx, args[0], append(slices.Clone(args[1:]), "run")...)
	server.Env, server.Stdout, server.Stderr = env, &printed, &printed
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waiter := exec.CommandContext(ctx, args[0], append(slices.Clone(args[1:]), "wait", "--for", "serving")...)
	waiter.Env = env
	out, failed := waiter.CombinedOutput()
	healthy := exec.CommandContext(ctx, args[0], append(slices.Clone(args[1:]), "healthcheck")...)
	healthy.Env = env
	health, unhealthy := healthy.CombinedOutput()
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("%s run: %v", strings.Join(args, " "), err)
	}
	if failed != nil || unhealthy != nil || !strings.Contains(printed.String(), "Endpoint=sb://") {
		t.Errorf("%s: wait: %v %s, healthcheck: %v %s, printed:\n%s", strings.Join(args, " "), failed, out, unhealthy, health, printed.String())
	}
}

// freePorts has the program listen nowhere else.
func freePorts(t *testing.T) []string {
	t.Helper()
	return []string{"OVERDUE_LISTEN_ADMIN=" + freeAddress(t), "OVERDUE_LISTEN_AMQP=127.0.0.1:0", "OVERDUE_LISTEN_HTTP=127.0.0.1:0", "OVERDUE_BROKER_LISTEN=127.0.0.1:0"}
}

// freeAddress is one on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // only its number is needed
	return fmt.Sprint(l.Addr())
}
