// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	user       = 65532 // by number, so that runAsNonRoot can be checked without a passwd file
	dataFolder = "var/lib/overdue"
	docFolder  = "usr/share/doc/overdue"
	imageTitle = "Overdue"
	imageAbout = "Eager expiry for Azure Service Bus: the proxy beside an app, the monitor, a broker for tests"

	emulatorTitle = "Overdue, in the place of the Service Bus emulator"
	emulatorAbout = "A broker for tests that speaks Azure Service Bus, on the ports and with the configuration of the official emulator"
)

// emulatorSuffix is what the tag of the image has that stands in for the official emulator.
const emulatorSuffix = "-emulator"

// An image is made of the Linux binaries in a folder and of what describe wrote beside them. There
// are two, with the same layer and other entry points.
type image struct {
	binaries string // has a folder such as overdue_linux_amd64_v1 for each platform
	version  string
	commit   string
	time     time.Time // every file and layer has it
	emulator bool      // the one that stands in for the official emulator
}

// makeImage writes images without a container engine: one as an OCI layout of all platforms, which
// registries take, or both in a tar for one platform, which engines load.
func makeImage(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("release image", flag.ContinueOnError)
	i := image{}
	flags.StringVar(&i.binaries, "binaries", "", "the folder of the binaries")
	flags.StringVar(&i.version, "version", "", "the version, such as 0.1.0")
	flags.StringVar(&i.commit, "commit", "", "the commit")
	seconds := flags.Int64("time", 0, "the time of the commit in seconds since 1970")
	flags.BoolVar(&i.emulator, "emulator", false, "have the OCI layout hold the image that stands in for the official emulator")
	oci := flags.String("oci", "", "the file for the OCI layout")
	loadable := flags.String("loadable", "", "the file for docker load, with both images for the first platform alone")
	tag := flags.String("name", "overdue:latest", "the name that docker load gives the image; the emulator's has "+emulatorSuffix+" behind it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	i.time = time.Unix(*seconds, 0).UTC()
	programs, err := filepath.Glob(filepath.Join(i.binaries, "overdue_linux_*", "overdue"))
	if err != nil || len(programs) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no folder overdue_linux_… with a binary", i.binaries))
	}
	if *oci != "" {
		return i.writeLayout(programs, *oci)
	}
	return i.writeLoadable(programs[0], *loadable, *tag)
}

// writeLoadable writes both images of one platform, with their names, into one file.
func (i image) writeLoadable(program, file, tag string) error {
	images := map[name.Tag]v1.Image{}
	for _, emulator := range []bool{false, true} {
		i.emulator = emulator
		ref, err := name.NewTag(tag + i.suffix())
		if err != nil {
			return err
		}
		if images[ref], err = i.imageOf(program); err != nil {
			return err
		}
	}
	return tarball.MultiWriteToFile(file, images)
}

// suffix is what the tag of the image has at its end.
func (i image) suffix() string {
	if i.emulator {
		return emulatorSuffix
	}
	return ""
}

// architecture is that of a binary, from the name of its folder.
func architecture(program string) string {
	return strings.Split(filepath.Base(filepath.Dir(program)), "_")[2]
}

func (i image) writeLayout(programs []string, file string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range programs {
		img, err := i.imageOf(program)
		if err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: architecture(program)}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, i.labels()).(v1.ImageIndex)
	folder, err := os.MkdirTemp("", "overdue-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // of the machine's temporary folder
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// A tag of an image may not have a plus.
	tag := map[string]string{"org.opencontainers.image.ref.name": strings.ReplaceAll(i.version, "+", "_") + i.suffix()}
	if err := l.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(i.archiveFolder(out, folder), out.Close())
}

// labels describe the image; they are its annotations, too.
func (i image) labels() map[string]string {
	title, about := imageTitle, imageAbout
	if i.emulator {
		title, about = emulatorTitle, emulatorAbout
	}
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": about,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     i.version,
		"org.opencontainers.image.revision":    i.commit,
		"org.opencontainers.image.created":     i.time.Format(time.RFC3339),
	}
}

func (i image) imageOf(program string) (v1.Image, error) {
	var content bytes.Buffer
	if err := i.writeRootFiles(&content, program); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{Created: v1.Time{Time: i.time}, CreatedBy: "make release"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture(program), v1.Time{Time: i.time}
	config.Config = i.runConfig()
	return mutate.ConfigFile(img, config)
}

// runConfig says how an engine runs the image.
func (i image) runConfig() v1.Config {
	c := v1.Config{
		Entrypoint: []string{"/overdue"},
		Cmd:        []string{"run"},
		Env:        []string{"PATH=/", "HOME=/" + dataFolder},
		User:       fmt.Sprintf("%d:%d", user, user),
		Labels:     i.labels(),
		Healthcheck: &v1.HealthConfig{
			Test:        []string{"CMD", "/overdue", "healthcheck"},
			Interval:    10 * time.Second,
			Timeout:     5 * time.Second,
			StartPeriod: 10 * time.Second,
			Retries:     3,
		},
	}
	if !i.emulator {
		// Nobody reads the banner: without a namespace the embedded broker runs only if
		// OVERDUE_BROKER_ENABLED=true asks for it.
		c.Env = append(c.Env, "OVERDUE_UNATTENDED=true")
		return c
	}
	c.Entrypoint, c.Cmd = []string{"/overdue", "emulator"}, nil
	c.ExposedPorts = map[string]struct{}{"5672/tcp": {}, "5300/tcp": {}}
	c.Healthcheck.Interval = time.Second // an engine waits as long before it checks first, and tests wait for the engine
	return c
}

// writeRootFiles writes the root file system of the image as a tar.
func (i image) writeRootFiles(w io.Writer, program string) error {
	t := tar.NewWriter(w)
	// `docker cp` of a configuration for the emulator needs its folder.
	folders := []string{"ServiceBus_Emulator", "ServiceBus_Emulator/ConfigFiles", "etc", "etc/ssl", "etc/ssl/certs", "tmp", "usr", "usr/share", "usr/share/doc", docFolder, "var", "var/lib", dataFolder}
	for _, folder := range folders {
		h := &tar.Header{Name: folder + "/", Mode: 0o755, Typeflag: tar.TypeDir, ModTime: i.time}
		switch folder {
		case "tmp":
			h.Mode = 0o1777
		case dataFolder: // what a process may write to, wherever nothing is mounted over it
			h.Uid, h.Gid = user, user
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
	}
	beside := filepath.Dir(program)
	if err := i.addData(t, "etc/ssl/certs/ca-certificates.crt", 0o644, roots()); err != nil {
		return err
	}
	return errors.Join(
		i.addFile(t, "overdue", 0o755, program),
		i.addFile(t, docFolder+"/LICENSE", 0o644, filepath.Join(checkout, "LICENSE")),
		i.addFile(t, docFolder+"/"+noticesFile, 0o644, filepath.Join(beside, noticesFile)),
		i.addFile(t, docFolder+"/"+materialsFile, 0o644, filepath.Join(beside, materialsFile)),
		t.Close(),
	)
}

// archiveFolder writes the files below a folder as a tar, in the order of their names.
func (i image) archiveFolder(w io.Writer, folder string) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return i.addFile(t, filepath.ToSlash(inside), 0o644, path)
	})
	return errors.Join(err, t.Close())
}

func (i image) addFile(t *tar.Writer, name string, mode int64, source string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return i.addData(t, name, mode, data)
}

func (i image) addData(t *tar.Writer, name string, mode int64, data []byte) error {
	h := &tar.Header{
		Name:     name,
		Mode:     mode,
		Size:     int64(len(data)),
		ModTime:  i.time,
		Typeflag: tar.TypeReg,
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

// roots are the certificates of the authorities that Mozilla trusts, in PEM: from a module, so
// that they do not depend on the machine.
func roots() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates has no room for conditions
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}
