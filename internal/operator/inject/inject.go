// SPDX-License-Identifier: Apache-2.0

// Package inject adds the sidecar of Overdue to Kubernetes manifests, and takes it out again.
//
//	manifest ──▶ documents ──┬─▶ a workload ──▶ its pod template, with the sidecar ──▶ encoded again
//	                         │                  and a ConfigMap behind it
//	                         └─▶ anything else ──▶ as it was, byte by byte
//
// A document is read twice: as kubectl reads it, which decides, and as nodes with comments and order,
// which are changed.
//
// The sidecar is a native one: an init container that is restarted always, which Kubernetes starts
// before the app and ends after it (kubernetes.io/docs/concepts/workloads/pods/sidecar-containers,
// from 1.29 on). An annotation of the pod records what was added, so that it can be taken out again.
package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"overdue/internal/escape"
)

// A Result is a manifest with sidecars, or without.
type Result struct {
	Manifest []byte
	Changed  []string // workloads that got a sidecar, or lost theirs, as in "Deployment orders"
	Skipped  []string // workloads that stay as they are, with the reason
}

// Manifest adds the sidecar to all workloads of a manifest, or takes it out. A workload that has a
// sidecar already gets the one that o describes. The error names each workload that cannot have
// one.
func Manifest(in []byte, o Options) (Result, error) {
	if len(in) > MaxManifest {
		return Result{}, fmt.Errorf("the manifest has %d bytes; %d are possible", len(in), MaxManifest)
	}
	lines := bytes.ReplaceAll(in, []byte("\r\n"), []byte("\n"))
	lines = bytes.TrimPrefix(bytes.ReplaceAll(lines, []byte("\n"+byteOrderMark), []byte("\n")), []byte(byteOrderMark))
	if hidden := escape.Hidden(lines); hidden != "" {
		return Result{}, fmt.Errorf("the manifest has %s, which a reader does not see; take it out", hidden)
	}
	m := manifest{o: o}
	var errs []error
	for i, chunk := range splitManifest(lines) {
		d, err := readDocument(chunk)
		if err == nil {
			err = m.document(d)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", i+1, err))
		}
	}
	out, err := m.join()
	if err := errors.Join(append(errs, err)...); err != nil {
		return Result{}, err
	}
	switch n := bytes.Count(in, []byte("\r\n")); {
	case bytes.Equal(out, lines) || !m.differs:
		out = in
	case n > 0 && n == bytes.Count(in, []byte("\n")):
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n"))
	}
	return Result{
		Manifest: out,
		Changed:  m.changed,
		Skipped:  m.skipped,
	}, nil
}

// byteOrderMark begins files of some editors on Windows, several of which may be one manifest.
const byteOrderMark = "\ufeff"

// A manifest is what is written.
type manifest struct {
	o                Options
	documents        []document
	differs          bool // from what was read
	changed, skipped []string
}

// document adds a document as it is to be written, and the ConfigMap that it needs. One without a
// change stays as it was.
func (m *manifest) document(d document) error {
	if isOurs(d.raw) {
		m.differs = true // one for the workload as it is now may follow
		return nil
	}
	kind := text(d.raw, "kind")
	if _, ok := podTemplates[kind]; !ok && kind != listKind {
		m.documents = append(m.documents, d)
		return nil
	}
	root, err := d.nodes()
	if err != nil {
		return err
	}
	made, err := m.object(root, d.raw)
	if err != nil {
		return err
	}
	after, err := d.encode(root)
	if err != nil {
		return err
	}
	if !isSame(after.raw, d.raw) {
		d, m.differs = after, true
	}
	m.documents = append(m.documents, d)
	if made == nil {
		return nil
	}
	config, err := document{text: []byte(separator)}.encode(made)
	m.documents, m.differs = append(m.documents, config), true
	return err
}

const listKind = "List"

// object changes a workload, or those of a List. made is the ConfigMap that it needs besides.
func (m *manifest) object(node *yaml.RNode, raw json.RawMessage) (made *yaml.RNode, err error) {
	kind := text(raw, "kind")
	if kind == listKind {
		return nil, m.list(node, field(raw, "items"))
	}
	w, err := readWorkload(kind, node, raw, m.o)
	if w == nil || err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", w.title(), err)
		}
	}()
	reason, isInjected := w.unwanted(), w.record() != ""
	switch {
	case !m.o.Remove && reason == "":
		m.changed = append(m.changed, w.title())
		s, err := w.add()
		return s.configMap, err
	case !m.o.Remove:
		m.skipped = append(m.skipped, w.title()+": "+reason)
	case isInjected:
		m.changed = append(m.changed, w.title())
	}
	if isInjected {
		err = w.remove()
	}
	return nil, err
}

// list changes the items of a List. A ConfigMap that we made stands behind its workload.
func (m *manifest) list(node *yaml.RNode, raw json.RawMessage) error {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || len(items) == 0 {
		return nil
	}
	var kept []*yaml.Node
	var errs []error
	list := node.Field("items").Value.YNode()
	for i, item := range list.Content {
		if isOurs(items[i]) {
			continue
		}
		made, err := m.object(yaml.NewRNode(item), items[i])
		errs = append(errs, err)
		if kept = append(kept, item); made != nil {
			kept = append(kept, made.YNode())
		}
	}
	list.Content = kept
	return errors.Join(errs...)
}

// join writes the documents one behind the other.
func (m *manifest) join() ([]byte, error) {
	var out bytes.Buffer
	configs := map[string]string{}
	for _, d := range m.documents {
		if text(d.raw, "kind") == "ConfigMap" {
			key := text(d.raw, "metadata", "namespace") + "/" + text(d.raw, "metadata", "name")
			other, isThere := configs[key]
			configs[key] = text(d.raw, "data", configKey)
			if isThere && other != configs[key] {
				return nil, fmt.Errorf("there would be two ConfigMaps %s; give a workload another name", text(d.raw, "metadata", "name"))
			}
		}
		if out.Len() > 0 && len(bytes.TrimSpace(d.text)) > 0 && !bytes.HasPrefix(d.text, []byte("---")) {
			out.WriteString(separator) // the document that began the manifest is gone
		}
		out.Write(d.text)
		if n := out.Len(); n > 0 && out.Bytes()[n-1] != '\n' {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

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

// Annotations of a workload or of its pod template, which take precedence over the workload.
const (
	prefix           = "overdue.sidecar/"
	annotateInject   = prefix + "inject"
	annotateQueues   = prefix + "queues"
	annotateTopics   = prefix + "topics"
	annotateSpace    = prefix + "namespace"
	annotateIdentity = prefix + "identity"
	annotateImage    = prefix + "image"
	annotateCPU      = prefix + "cpu"
	annotateMemory   = prefix + "memory"
	annotateInjected = prefix + "injected" // ours: what the configuration is, and whether the label is ours
	annotateConfig   = prefix + "config"   // ours: the configuration of a pod that was changed at admission
)

// Annotations are those that a workload may have, with what they say.
var Annotations = [][2]string{
	{annotateInject, `"false" leaves the workload as it is`},
	{annotateSpace, "the Service Bus namespace, fully qualified"},
	{annotateQueues, "the monitored queues, with commas between them"},
	{annotateTopics, "the topics that are monitored, likewise"},
	{annotateIdentity, "workload, or secret:NAME/KEY"},
	{annotateImage, "the image of the sidecar"},
	{annotateCPU, "the processor time that it requests, as 50m"},
	{annotateMemory, "its request and limit of memory, as 128Mi"},
}

// annotation returns one of the pod template, or of the workload.
func (w *workload) annotation(key string) string {
	if value := w.pod.Metadata.Annotations[key]; value != "" {
		return value
	}
	return w.meta.Annotations[key]
}

// annotate applies the annotations to the options.
func (w *workload) annotate() {
	for key, value := range map[string]*string{annotateSpace: &w.o.Namespace, annotateIdentity: &w.o.Identity, annotateImage: &w.o.Image} {
		if v := w.annotation(key); v != "" {
			*value = v
		}
	}
	for key, value := range map[string]*[]string{annotateQueues: &w.o.Queues, annotateTopics: &w.o.Topics} {
		if v := w.annotation(key); v != "" {
			*value = Names(v)
		}
	}
}

// Names splits a list with commas.
func Names(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
