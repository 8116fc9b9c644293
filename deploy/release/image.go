// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	imageTitle = "Overdue"
	imageAbout = "Eager expiry for Azure Service Bus: the proxy beside an app, the monitor, a broker for tests"
)

// image writes the image for all Linux platforms as an OCI layout, once as a folder and once as
// the tar that tools copy into a registry. It is the image of the Dockerfile, without a container engine.
func (r *release) image(programs []program) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range programs {
		if b.os != "linux" {
			continue
		}
		img, err := r.imageOf(b)
		if err != nil {
			return fmt.Errorf("image of %s: %w", b, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) == 0 {
		return err
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	name := "overdue_" + r.version + "_oci"
	folder := filepath.Join(r.out, name)
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.tag()}))
	if err != nil {
		return err
	}
	return r.write(name+".tar", func(w io.Writer) error {
		files, err := under(folder)
		if err != nil {
			return err
		}
		return tarred(w, files, r.time)
	})
}

// tag is the version as a tag of an image, which may not have a plus.
func (r *release) tag() string {
	return strings.ReplaceAll(r.version, "+", "_")
}

// labels describe the image; they are its annotations, too.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       imageTitle,
		"org.opencontainers.image.description": imageAbout,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.time.Format(time.RFC3339),
	}
}

func (r *release) imageOf(b program) (v1.Image, error) {
	var content bytes.Buffer
	if err := r.rootFiles(&content, b); err != nil {
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
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/overdue"},
		Cmd:        []string{"run"},
		Env:        []string{"PATH=/", "HOME=/" + dataFolder, "OVERDUE_UNATTENDED=true"},
		User:       fmt.Sprintf("%d:%d", user, user),
		Labels:     r.labels(),
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/overdue", "healthcheck"}, Interval: 10 * time.Second,
			Timeout: 5 * time.Second, StartPeriod: 10 * time.Second, Retries: 3,
		},
	}
	return mutate.ConfigFile(img, config)
}

// rootFiles writes the root file system of the image as a tar.
func (r *release) rootFiles(w io.Writer, b program) error {
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	folders := []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "tmp/", "usr/", "usr/share/", "usr/share/doc/", "usr/share/doc/overdue/", "var/", "var/lib/"}
	for _, name := range folders {
		mode := int64(0o755)
		if name == "tmp/" {
			mode = 0o1777
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeDir, ModTime: r.time}); err != nil {
			return err
		}
	}
	// What a process may write to, wherever nothing is mounted over it: the journal, certificates of Overdue's own.
	err = t.WriteHeader(&tar.Header{Name: dataFolder + "/", Mode: 0o755, Typeflag: tar.TypeDir, ModTime: r.time, Uid: user, Gid: user})
	if err != nil {
		return err
	}
	if err := entries(t, []file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots()},
		{"overdue", 0o755, b.binary},
		{"usr/share/doc/overdue/LICENSE", 0o644, license},
		{"usr/share/doc/overdue/" + noticesFile, 0o644, b.notices},
	}, r.time); err != nil {
		return err
	}
	return t.Close()
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

// under returns the files below a folder.
func under(folder string) ([]file, error) {
	var all []file
	err := filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, name)
		all = append(all, file{filepath.ToSlash(rel), 0o644, data})
		return err
	})
	slices.SortFunc(all, byPath)
	return all, err
}
