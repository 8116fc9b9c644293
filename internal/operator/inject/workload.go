// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// podTemplates are the kinds with pods, and where their templates are.
var podTemplates = map[string][]string{
	"Pod": nil, "Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "DaemonSet": {"spec", "template"},
	"ReplicaSet": {"spec", "template"}, "ReplicationController": {"spec", "template"}, "Job": {"spec", "template"},
	"CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// ports are those of the sidecar, which no container of the pod may have besides.
var ports = []int32{5672, 5300, 9095, 9096}

const (
	identityLabel = "azure.workload.identity/use"
	// ownLabel ends the annotation annotateInjected if the label is ours.
	ownLabel = ",made=use"
)

// An object is what decides about the sidecar in an object, or in its pod template. Package core/v1
// of k8s.io/api has all other fields too, for 4 MiB of the binary and 1 MiB of every process's
// memory.
type object struct {
	Metadata metadata `json:"metadata"`
	Spec     podSpec  `json:"spec"` // of a pod template
}

type metadata struct {
	Name            string            `json:"name"`
	GenerateName    string            `json:"generateName"`
	Namespace       string            `json:"namespace"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	OwnerReferences []struct{}        `json:"ownerReferences"`
}

type podSpec struct {
	InitContainers []item            `json:"initContainers"`
	Containers     []item            `json:"containers"`
	Volumes        []item            `json:"volumes"`
	HostNetwork    bool              `json:"hostNetwork"`
	NodeSelector   map[string]string `json:"nodeSelector"`
	OS             item              `json:"os"`
	GraceSeconds   *int64            `json:"terminationGracePeriodSeconds"`
}

// An item is a container, a volume or an operating system.
type item struct {
	Name  string `json:"name"`
	Ports []struct {
		ContainerPort int32 `json:"containerPort"`
	} `json:"ports"`
}

// A workload is an object with a pod template.
type workload struct {
	kind     string
	meta     metadata // of the object
	pod      object
	node     *yaml.RNode // of the pod template
	o        Options
	admitted bool // a pod that is being created; no object can be made beside it
}

// readWorkload reads an object as an API server does; nil: it has no pods.
func readWorkload(kind string, node *yaml.RNode, raw json.RawMessage, o Options) (*workload, error) {
	w := &workload{
		kind: kind,
		o:    o,
	}
	path, ok := podTemplates[kind]
	pod := field(raw, path...)
	if isForeign := strings.Contains(text(raw, "apiVersion"), ".") && pod == nil; !ok || isForeign {
		return nil, nil
	}
	errs := []error{checkRendered(raw)}
	decode := func(raw json.RawMessage, into any) {
		if raw != nil {
			errs = append(errs, kjson.UnmarshalCaseSensitivePreserveInts(raw, into))
		}
	}
	decode(field(raw, "metadata"), &w.meta)
	decode(pod, &w.pod)
	var err error
	if w.node, err = node.Pipe(yaml.Lookup(path...)); err == nil && len(field(pod, "spec")) == 0 {
		err = fmt.Errorf("%s is not there", strings.Join(append(slices.Clone(path), "spec"), "."))
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, text(raw, "metadata", "name"), err)
	}
	w.annotate()
	return w, nil
}

func (w *workload) name() string {
	if w.meta.Name != "" {
		return w.meta.Name
	}
	return strings.TrimRight(w.meta.GenerateName, "-")
}

func (w *workload) title() string { return w.kind + " " + w.name() }

// record is what an earlier run has written; "": the pod template has no sidecar of ours.
func (w *workload) record() string { return w.pod.Metadata.Annotations[annotateInjected] }

// unwanted says why a workload stays as it is; "": it does not.
func (w *workload) unwanted() string {
	const labelOS, oldLabelOS, windows = "kubernetes.io/os", "beta.kubernetes.io/os", "windows"
	const mirror = "kubernetes.io/config.mirror"
	wanted, err := strconv.ParseBool(w.annotation(annotateInject))
	isTaken := slices.ContainsFunc(w.containers(), func(c item) bool { return c.Name == containerName })
	selector := w.pod.Spec.NodeSelector
	switch {
	case err == nil && !wanted:
		return fmt.Sprintf("%s is %q", annotateInject, w.annotation(annotateInject))
	case w.pod.Spec.OS.Name == windows, selector[labelOS] == windows, selector[oldLabelOS] == windows:
		return "its pods run on Windows"
	case !w.admitted && len(w.meta.OwnerReferences) > 0:
		return "another object owns it"
	case w.admitted && w.annotation(mirror) != "": // its entry in the API is a copy, which nobody may change
		return "a kubelet runs it from a file"
	case w.admitted && w.record() != "":
		return "it has a sidecar already"
	case w.admitted && isTaken:
		return fmt.Sprintf("it has a container %q already", containerName)
	}
	return ""
}

func (w *workload) containers() []item {
	return slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers)
}

// possible reports what keeps the sidecar from running in the pod.
func (w *workload) possible() error {
	isInjected := w.record() != ""
	if w.admitted && w.annotation(annotateConfig) != "" {
		return fmt.Errorf("it has the annotation %s, which is for Overdue to write; take it out", annotateConfig)
	}
	if w.pod.Spec.HostNetwork {
		return errors.New("its pods use the network of the node, where the ports of the sidecar may be taken; see `overdue proxy` as a service")
	}
	for _, c := range w.containers() {
		if c.Name == containerName && isInjected {
			continue
		}
		if c.Name == containerName {
			return fmt.Errorf("it has a container %q that this command has not added; rename it, or take it out", c.Name)
		}
		for _, p := range c.Ports {
			if slices.Contains(ports, p.ContainerPort) {
				return fmt.Errorf("its container %q has port %d, which the sidecar needs", c.Name, p.ContainerPort)
			}
		}
	}
	for _, v := range w.pod.Spec.Volumes {
		if !isInjected && (v.Name == configVolume || v.Name == dataVolume) {
			return fmt.Errorf("it has a volume %q that this command has not added; rename it", v.Name)
		}
	}
	return nil
}

// add adds the sidecar, or replaces the one that there is.
func (w *workload) add() (s sidecar, err error) {
	if s, err = w.sidecar(); err != nil {
		return s, err
	}
	if err := errors.Join(w.possible(), w.clearEmpty()); err != nil {
		return s, err
	}
	record, isOurs := "config="+digest(s.configFile), strings.HasSuffix(w.record(), ownLabel)
	switch {
	case w.o.Identity == IdentityWorkload && (isOurs || w.pod.Metadata.Labels[identityLabel] == ""):
		record += ownLabel
		err = w.node.PipeE(yaml.SetLabel(identityLabel, "true"))
	case isOurs:
		err = w.node.PipeE(yaml.Lookup("metadata", "labels"), yaml.Clear(identityLabel))
	}
	return s, errors.Join(err,
		w.put("initContainers", containerName, s.container),
		w.put("volumes", configVolume, s.volumes[0]),
		w.put("volumes", dataVolume, s.volumes[1]),
		w.node.PipeE(yaml.SetAnnotation(annotateInjected, record)))
}

// remove takes out what an earlier run has added, and what is empty then.
func (w *workload) remove() error {
	var err error
	if strings.HasSuffix(w.record(), ownLabel) {
		err = w.node.PipeE(yaml.Lookup("metadata", "labels"), yaml.Clear(identityLabel))
	}
	return errors.Join(err,
		w.put("initContainers", containerName, nil),
		w.put("volumes", configVolume, nil),
		w.put("volumes", dataVolume, nil),
		w.node.PipeE(yaml.ClearAnnotation(annotateInjected)),
		w.node.PipeE(yaml.ClearAnnotation(annotateConfig)),
		w.clearEmpty())
}

// put sets the item of a list of the spec that has a name; nil: it goes. A container that is new is
// the first one: the others may send.
func (w *workload) put(list, name string, item *yaml.Node) error {
	l, err := w.node.Pipe(yaml.LookupCreate(yaml.SequenceNode, "spec", list))
	if err != nil {
		return err
	}
	if item != nil && name == containerName && l.Element("name", name) == nil {
		l.YNode().Content = slices.Insert(l.Content(), 0, item)
		return nil
	}
	return l.PipeE(yaml.ElementSetter{
		Keys:    []string{"name"},
		Values:  []string{name},
		Element: item,
	})
}

// clearEmpty removes keys of the pod template that are empty or without a value.
func (w *workload) clearEmpty() error {
	for _, path := range [][]string{{"spec", "initContainers"}, {"spec", "volumes"}, {"metadata", "annotations"}, {"metadata", "labels"}, {"metadata"}} {
		last := len(path) - 1
		parent, err := w.node.Pipe(yaml.Lookup(path[:last]...))
		if err == nil && !yaml.IsMissingOrNull(parent) {
			err = parent.PipeE(yaml.FieldClearer{Name: path[last], IfEmpty: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
