// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// noticesFile is where the licences of the modules are in every artefact.
const noticesFile = "THIRD_PARTY_NOTICES.txt"

// archive writes the archive of one platform: zip for Windows, tar.gz for the others. Everything
// is in one folder with the name of the archive.
func (r *release) archive(b program, shared []file) error {
	name := "overdue_" + r.version + "_" + b.String()
	var files []file
	for _, f := range shared {
		if b.os != "linux" && path.Dir(f.path) == "deploy/systemd" {
			continue
		}
		files = append(files, file{name + "/" + f.path, f.mode, f.data})
	}
	files = append(files,
		file{name + "/" + b.program(), 0o755, b.binary},
		file{name + "/" + noticesFile, 0o644, b.notices})
	slices.SortFunc(files, byPath)
	if b.os == "windows" {
		return r.write(name+".zip", func(w io.Writer) error { return zipped(w, files, r.time) })
	}
	return r.write(name+".tar.gz", func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(tarred(z, files, r.time), z.Close())
	})
}

// write makes one artefact.
func (r *release) write(name string, content func(io.Writer) error) error {
	var all bytes.Buffer
	if err := content(&all); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), all.Bytes(), 0o644)
}

// tarred writes files as a tar, each owned by root.
func tarred(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	return errors.Join(entries(t, files, at), t.Close())
}

func entries(t *tar.Writer, files []file, at time.Time) error {
	for _, f := range files {
		err := t.WriteHeader(&tar.Header{Name: f.path, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg})
		if err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return nil
}

func zipped(w io.Writer, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}
