// SPDX-License-Identifier: Apache-2.0

package inject

import "strings"

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
	{annotateQueues, "the queues that are monitored, with commas between them"},
	{annotateTopics, "the topics that are monitored, likewise"},
	{annotateIdentity, "workload, or secret:NAME/KEY"},
	{annotateImage, "the image of the sidecar"},
	{annotateCPU, "the processor time that it requests, as 50m"},
	{annotateMemory, "the memory that it requests and at most gets, as 128Mi"},
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
