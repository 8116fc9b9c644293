// SPDX-License-Identifier: Apache-2.0

// Package inject adds the sidecar of Overdue to Kubernetes manifests, and takes it out again.
//
//	manifest ──▶ documents ──┬─▶ a workload ──▶ its pod template, with the sidecar ──▶ encoded again
//	                         │                  and a ConfigMap behind it
//	                         └─▶ anything else ──▶ as it was, byte by byte
//
// The sidecar is a native one: an init container that is restarted always, which Kubernetes starts
// before the app and ends after it (kubernetes.io/docs/concepts/workloads/pods/sidecar-containers,
// from 1.29 on). An annotation of the pod records what was added, so that it can be taken out again.
package inject

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"overdue/internal/escape"

	"go.yaml.in/yaml/v3"
)

// MaxManifest bounds a manifest, in bytes.
const MaxManifest = 16 << 20

// Options say what is added. Annotations of a workload take precedence, see [Annotations].
type Options struct {
	Image     string // of the sidecar
	Namespace string // fully qualified name of the Service Bus namespace; "": the identity is a secret
	Queues    []string
	Topics    []string // with Queues: what is monitored; none: all that a send passes through to
	Identity  string   // IdentityWorkload, or IdentitySecret with the name of a Secret and a key
	Config    []byte   // the configuration file of the sidecar, instead of one made of Queues and Topics
	Remove    bool     // take the sidecar out
}

// Identities of a sidecar.
const (
	IdentityWorkload = "workload" // Microsoft Entra Workload ID: the service account of the pod
	IdentitySecret   = "secret:"  // secret:NAME/KEY: a connection string in a Secret
)

// A Result is a manifest with sidecars, or without.
type Result struct {
	Manifest []byte
	Changed  []string // workloads that got a sidecar, or lost theirs, as in "Deployment orders"
	Skipped  []string // workloads that stay as they are, with the reason
}

// Manifest adds the sidecar to all workloads of a manifest, or takes it out. What has a sidecar
// already gets the one that o describes. The error names each workload that cannot have one.
func Manifest(in []byte, o Options) (Result, error) {
	in = bytes.ReplaceAll(in, []byte("\r\n"), []byte("\n"))
	if len(in) > MaxManifest {
		return Result{}, fmt.Errorf("the manifest has %d bytes; %d are possible", len(in), MaxManifest)
	}
	if hidden := escape.Hidden(in); hidden != "" {
		return Result{}, fmt.Errorf("the manifest has %s, which a reader does not see; take it out", hidden)
	}
	var result Result
	var errs []error
	var out bytes.Buffer
	for i, document := range documents(in) {
		j := injector{o: o, compact: isCompact(document)}
		text, err := j.document(document)
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", i+1, err))
			continue
		}
		if out.Len() > 0 && len(text) > 0 && !bytes.HasPrefix(text, []byte("---")) {
			out.WriteString("---\n") // the document that began the manifest is gone
		}
		out.Write(text)
		result.Changed, result.Skipped = append(result.Changed, j.changed...), append(result.Skipped, j.skipped...)
	}
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	result.Manifest = out.Bytes()
	return result, nil
}

// documents splits a manifest at the lines that begin a document, which stay with what follows.
func documents(in []byte) (all [][]byte) {
	start := 0
	for at := 0; at < len(in); {
		end := at + bytes.IndexByte(in[at:], '\n') + 1
		if end == at {
			end = len(in)
		}
		line := in[at:end]
		marker := bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || strings.ContainsRune(" \t\n", rune(line[3])))
		if marker && at > start {
			all, start = append(all, in[start:at]), at
		}
		at = end
	}
	return append(all, in[start:])
}

// isCompact reports whether the items of a list stand in the column of its key.
func isCompact(document []byte) bool {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	key := -1
	for line := range strings.Lines(string(document)) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if strings.HasPrefix(text, "- ") && key >= 0 {
			return indent(line) == key
		}
		if key = -1; strings.HasSuffix(text, ":") && !strings.HasPrefix(text, "- ") {
			key = indent(line)
		}
	}
	return false
}

// An injector handles one document.
type injector struct {
	o                Options
	compact          bool
	changed, skipped []string
}

// document returns a document as it is to be written. One without a change stays as it was.
func (j *injector) document(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if doc.Kind != yaml.DocumentNode {
		return text, nil // comments, or nothing
	}
	root := doc.Content[0]
	if isOurs(root) {
		return nil, nil // one for the workload as it is now may follow
	}
	made, changed, err := j.object(root)
	if err != nil || !changed {
		return text, err
	}
	var out bytes.Buffer
	if bytes.HasPrefix(text, []byte("---")) {
		out.WriteString("---\n")
	}
	if err := j.encode(&out, &doc); err != nil {
		return nil, err
	}
	for _, m := range made {
		out.WriteString("---\n")
		if err := j.encode(&out, m); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func (j *injector) encode(out *bytes.Buffer, n *yaml.Node) error {
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	if j.compact {
		e.CompactSeqIndent()
	}
	return errors.Join(e.Encode(n), e.Close())
}

// object changes a workload, or those of a list. made are the objects that it needs besides.
func (j *injector) object(root *yaml.Node) (made []*yaml.Node, changed bool, err error) {
	if root.Kind != yaml.MappingNode {
		return nil, false, nil
	}
	kind := text(root, "kind")
	if kind == "List" {
		changed, err = j.list(root)
		return nil, changed, err
	}
	path, ok := podTemplates[kind]
	if !ok {
		return nil, false, nil
	}
	w := workload{kind: kind, root: root, pod: root, o: j.o}
	for _, key := range path {
		if w.pod = get(w.pod, key); w.pod == nil || w.pod.Kind != yaml.MappingNode {
			return nil, false, fmt.Errorf("%s: %s is not a mapping; write it out", w.title(), strings.Join(path, "."))
		}
	}
	had, err := w.remove()
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", w.title(), err)
	}
	if j.o.Remove {
		if had {
			j.changed = append(j.changed, w.title())
		}
		return nil, had, nil
	}
	if reason := w.unwanted(); reason != "" {
		j.skipped = append(j.skipped, w.title()+": "+reason)
		return nil, had, nil
	}
	config, err := w.add()
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", w.title(), err)
	}
	j.changed = append(j.changed, w.title())
	return []*yaml.Node{config}, true, nil
}

// list changes the items of a List. A ConfigMap that we made stands behind its workload.
func (j *injector) list(root *yaml.Node) (changed bool, err error) {
	items := get(root, "items")
	if items == nil || items.Kind != yaml.SequenceNode {
		return false, nil
	}
	var kept []*yaml.Node
	var errs []error
	for _, item := range items.Content {
		if isOurs(item) {
			changed = true
			continue
		}
		made, did, err := j.object(item)
		errs = append(errs, err)
		changed = changed || did
		kept = append(append(kept, item), made...)
	}
	items.Content = kept
	return changed, errors.Join(errs...)
}
