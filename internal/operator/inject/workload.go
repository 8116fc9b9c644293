// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// podTemplates are the kinds with pods, and where their templates are.
var podTemplates = map[string][]string{
	"Pod": nil, "Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "DaemonSet": {"spec", "template"},
	"ReplicaSet": {"spec", "template"}, "ReplicationController": {"spec", "template"}, "Job": {"spec", "template"},
	"CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// Annotations of a workload or of its pod template, which take precedence over the workload.
const (
	prefix           = "overdue.sidecar/"
	annotateInject   = prefix + "inject" // "false" leaves the workload as it is
	annotateQueues   = prefix + "queues" // names, between commas
	annotateTopics   = prefix + "topics"
	annotateSpace    = prefix + "namespace"
	annotateIdentity = prefix + "identity"
	annotateImage    = prefix + "image"
	annotateCPU      = prefix + "cpu"    // that the sidecar requests
	annotateMemory   = prefix + "memory" // that it requests, and at most gets
	// annotateInjected is ours: which keys of the pod we have made, and what the configuration is.
	annotateInjected = prefix + "injected"
	// annotateConfig is ours: the configuration of the sidecar, in a pod that was changed at admission.
	annotateConfig = prefix + "config"
)

// Annotations are those that a workload may have, with what they say.
var Annotations = [][2]string{
	{annotateInject, `"false" leaves the workload as it is`},
	{annotateSpace, "the Service Bus namespace, fully qualified"},
	{annotateQueues, "the queues that are monitored, with commas between them"},
	{annotateTopics, "the topics that are monitored, likewise"},
	{annotateIdentity, "workload, or secret:NAME/KEY"},
	{annotateImage, "the image of the sidecar"},
	{annotateCPU, "the processor time that it requests, as 50m"},
	{annotateMemory, "the memory that it requests and at most gets, as 128Mi"},
}

const (
	identityLabel  = "azure.workload.identity/use"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "overdue-inject"
)

// ports are those of the sidecar, which no container of the pod may have besides.
var ports = []string{"5672", "5300", "9095", "9096"}

// A workload is an object with a pod template.
type workload struct {
	kind      string
	root, pod *yaml.Node
	o         Options
	// admitted is a pod that is being created. No object can be made beside it, so its configuration
	// stands in an annotation.
	admitted bool
}

func (w *workload) name() string {
	if name := text(w.root, "metadata", "name"); name != "" {
		return name
	}
	return strings.TrimRight(text(w.root, "metadata", "generateName"), "-")
}

func (w *workload) title() string { return w.kind + " " + w.name() }

// annotation returns one of the pod template, or of the workload.
func (w *workload) annotation(key string) string {
	if value := text(w.pod, "metadata", "annotations", key); value != "" {
		return value
	}
	return text(w.root, "metadata", "annotations", key)
}

// unwanted says why a workload stays as it is; "": it does not.
func (w *workload) unwanted() string {
	switch {
	case w.annotation(annotateInject) == "false":
		return annotateInject + ` is "false"`
	case text(w.pod, "spec", "nodeSelector", "kubernetes.io/os") == "windows", text(w.pod, "spec", "os", "name") == "windows":
		return "its pods run on Windows"
	case w.admitted:
		return w.unwantedAtAdmission()
	case get(get(w.root, "metadata"), "ownerReferences") != nil:
		return "another object owns it"
	}
	return ""
}

// remove takes out what an earlier run has added.
func (w *workload) remove() (had bool, err error) {
	spec, meta := get(w.pod, "spec"), get(w.pod, "metadata")
	if spec == nil || spec.Kind != yaml.MappingNode {
		return false, errors.New("its pod template has no spec")
	}
	annotations := get(meta, "annotations")
	record := text(annotations, annotateInjected)
	if record == "" {
		return false, nil
	}
	_, list, _ := strings.Cut(record, "made=")
	made := strings.Split(list, "+")
	drop(spec, "initContainers", containerName)
	drop(spec, "volumes", configVolume)
	drop(spec, "volumes", dataVolume)
	remove(annotations, annotateInjected)
	remove(annotations, annotateConfig)
	if slices.Contains(made, "use") {
		remove(get(meta, "labels"), identityLabel)
	}
	for _, of := range []struct {
		in  *yaml.Node
		key string
	}{{spec, "initContainers"}, {spec, "volumes"}, {meta, "annotations"}, {meta, "labels"}, {w.pod, "metadata"}} {
		if v := get(of.in, of.key); v != nil && len(v.Content) == 0 && slices.Contains(made, of.key) {
			remove(of.in, of.key)
		}
	}
	return true, nil
}

// add adds the sidecar, and returns the ConfigMap that it needs.
func (w *workload) add() (*yaml.Node, error) {
	w.annotated()
	s, err := w.sidecar()
	if err != nil {
		return nil, err
	}
	file, err := w.configFile()
	if err != nil {
		return nil, err
	}
	spec := get(w.pod, "spec")
	if err := w.possible(spec); err != nil {
		return nil, err
	}
	var made []string
	ensured := func(in *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
		v, isNew := ensure(in, key, kind)
		if isNew {
			made = append(made, key)
		}
		return v
	}
	init := ensured(spec, "initContainers", yaml.SequenceNode)
	volumes := ensured(spec, "volumes", yaml.SequenceNode)
	meta := ensured(w.pod, "metadata", yaml.MappingNode)
	annotations := ensured(meta, "annotations", yaml.MappingNode)
	if init.Kind != yaml.SequenceNode || volumes.Kind != yaml.SequenceNode || annotations.Kind != yaml.MappingNode {
		return nil, errors.New("initContainers, volumes or annotations of its pod template are of another type")
	}
	container, err := s.node()
	if err != nil {
		return nil, err
	}
	init.Content = slices.Insert(init.Content, 0, container) // before all others: they may send
	volumes.Content = append(volumes.Content, volumeOf(configVolume, w.configSource()), volumeOf(dataVolume, emptyDir()))
	if w.o.Identity == IdentityWorkload {
		if labels := ensured(meta, "labels", yaml.MappingNode); get(labels, identityLabel) == nil {
			set(labels, identityLabel, scalar("true"))
			made = append(made, "use")
		}
	}
	set(annotations, annotateInjected, scalar("config="+digest(file)+",made="+strings.Join(made, "+")))
	if w.admitted {
		set(annotations, annotateConfig, scalar(file))
		return nil, nil
	}
	return w.configMap(file), nil
}

// annotated applies the annotations to the options.
func (w *workload) annotated() {
	for _, of := range []struct {
		key   string
		value *string
	}{{annotateSpace, &w.o.Namespace}, {annotateIdentity, &w.o.Identity}, {annotateImage, &w.o.Image}} {
		if v := w.annotation(of.key); v != "" {
			*of.value = v
		}
	}
	for _, of := range []struct {
		key   string
		value *[]string
	}{{annotateQueues, &w.o.Queues}, {annotateTopics, &w.o.Topics}} {
		if v := w.annotation(of.key); v != "" {
			*of.value = Names(v)
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

// possible reports what keeps the sidecar from running in the pod.
func (w *workload) possible(spec *yaml.Node) error {
	if w.name() == "" && !w.admitted {
		return errors.New("it has no name, which its ConfigMap needs")
	}
	if w.admitted && w.annotation(annotateConfig) != "" {
		return fmt.Errorf("it has the annotation %s, which is for Overdue to write; take it out", annotateConfig)
	}
	if text(spec, "hostNetwork") == "true" {
		return errors.New("its pods use the network of the node, where the ports of the sidecar may be taken; see `overdue proxy` as a service")
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers := get(spec, list)
		if containers == nil {
			continue
		}
		for _, c := range containers.Content {
			name := text(c, "name")
			if name == containerName {
				return fmt.Errorf("it has a container %q that this command has not added; rename it, or take it out", name)
			}
			open := get(c, "ports")
			if open == nil {
				continue
			}
			for _, p := range open.Content {
				if port := text(p, "containerPort"); slices.Contains(ports, port) {
					return fmt.Errorf("its container %q has port %s, which the sidecar needs", name, port)
				}
			}
		}
	}
	for _, volume := range []string{configVolume, dataVolume} {
		if named(get(spec, "volumes"), volume) >= 0 {
			return fmt.Errorf("it has a volume %q that this command has not added; rename it", volume)
		}
	}
	return nil
}

// maxName is how long names of objects may be
// (kubernetes.io/docs/concepts/overview/working-with-objects/names).
const maxName = 253

func (w *workload) configName() string {
	const suffix = "-overdue"
	name := w.name()
	if len(name)+len(suffix) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxName-len(suffix)-9] + "-" + hex.EncodeToString(sum[:4])
	}
	return name + suffix
}

// isOurs reports whether an object is a ConfigMap that an earlier run has added.
func isOurs(object *yaml.Node) bool {
	return text(object, "kind") == "ConfigMap" && text(object, "metadata", "labels", managedByLabel) == managedBy
}
