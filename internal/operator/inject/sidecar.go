// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"overdue/internal/servicebus/address"
)

//go:embed sidecar.yaml
var sidecarYAML string

var sidecarTemplate = template.Must(template.New("sidecar.yaml").Parse(sidecarYAML))

// A sidecar is what is added.
type sidecar struct {
	container  *yaml.Node
	volumes    []*yaml.Node
	configMap  *yaml.RNode // nil for a pod that is being created
	configFile string
}

// Names that sidecar.yaml has, too.
const (
	containerName  = "overdue"
	configVolume   = "overdue-config"
	dataVolume     = "overdue-data"
	configKey      = "overdue.yaml"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "overdue-inject"
)

// values are what sidecar.yaml leaves open. All are checked, or quoted.
type values struct {
	Image, Namespace           string
	Secret, Key                string // of the connection string; "": Namespace is stated
	CPU, Memory, MemoryLimit   string
	DrainTime, StopTimeout     time.Duration
	ConfigMap, ObjectNamespace string
	Hooks                      map[string]string // annotations that say when an object is created
}

// The processor time and memory that the sidecar requests, and the memory that it gets at most.
const (
	defaultCPU         = "50m"
	defaultMemory      = "64Mi"
	defaultMemoryLimit = "512Mi"
)

const (
	// defaultGraceSeconds is terminationGracePeriodSeconds where a pod states none.
	defaultGraceSeconds = 30
	// minGraceSeconds is the shortest in which an app and then the sidecar can end.
	minGraceSeconds = 5
)

// sidecar makes what w needs.
func (w *workload) sidecar() (s sidecar, err error) {
	v, err := w.values()
	if err != nil {
		return s, err
	}
	if s.configFile, err = w.configFile(); err != nil {
		return s, err
	}
	var out bytes.Buffer
	if err := sidecarTemplate.Execute(&out, v); err != nil {
		return s, err
	}
	var parts []*yaml.RNode
	for part := range strings.SplitSeq(out.String(), separator) {
		node, err := yaml.Parse(part)
		if err != nil {
			return s, err
		}
		parts = append(parts, node)
	}
	s.container = parts[0].YNode()
	s.volumes = []*yaml.Node{parts[1].YNode(), parts[2].YNode()}
	if w.admitted {
		return s, nil
	}
	s.configMap = parts[3]
	content := yaml.NewStringRNode(s.configFile)
	content.YNode().Style = yaml.LiteralStyle
	return s, s.configMap.PipeE(yaml.Lookup("data"), yaml.SetField(configKey, content))
}

// isOurs reports whether an object is a ConfigMap that an earlier run has added.
func isOurs(raw json.RawMessage) bool {
	return text(raw, "kind") == "ConfigMap" && text(raw, "metadata", "labels", managedByLabel) == managedBy
}

// configName differs by kind: workloads of two kinds may have one name. It ends in -overdue only for
// a Deployment, so no two are the same.
func (w *workload) configName() string {
	if w.kind == "Deployment" {
		return w.name() + "-overdue"
	}
	return w.name() + "-overdue-" + strings.ToLower(w.kind)
}

var imageName = regexp.MustCompile(`^\w[\w.:/@-]*$`)

// values reads the options of w, and reports every mistake in them.
func (w *workload) values() (v values, err error) {
	var errs []error
	mistake := func(is bool, format string, a ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	isNoName := func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }
	v = values{
		Image:       plain(w.o.Image),
		Namespace:   plain(w.o.Namespace),
		CPU:         defaultCPU,
		Memory:      defaultMemory,
		MemoryLimit: defaultMemoryLimit,
		Hooks:       map[string]string{},
	}
	mistake(!imageName.MatchString(w.o.Image), "image %q is not the name of an image", w.o.Image)
	if secret, isSecret := strings.CutPrefix(w.o.Identity, IdentitySecret); isSecret {
		name, key, _ := strings.Cut(secret, "/")
		mistake(isNoName(name) || len(validation.IsConfigMapKey(key)) > 0, "identity %q is not secret:NAME/KEY", w.o.Identity)
		v.Secret, v.Key = plain(name), plain(key)
	} else if w.o.Identity != IdentityWorkload {
		mistake(true, "identity %q is neither %q nor secret:NAME/KEY", w.o.Identity, IdentityWorkload)
	} else if v.Namespace == "" {
		mistake(true, "the Service Bus namespace is unknown; state it with --namespace or %s", annotateSpace)
	} else {
		mistake(isNoName(strings.ToLower(v.Namespace)) || !strings.Contains(v.Namespace, "."), "namespace %q is not a fully qualified name, as contoso.servicebus.windows.net", w.o.Namespace)
	}
	if cpu := w.annotation(annotateCPU); cpu != "" {
		v.CPU = cpu
	}
	if memory := w.annotation(annotateMemory); memory != "" {
		v.Memory, v.MemoryLimit = memory, memory
	}
	for _, stated := range []string{v.CPU, v.Memory} {
		q, err := resource.ParseQuantity(stated)
		mistake(err != nil || q.Sign() <= 0, "%q is not a quantity, as 50m or 128Mi", stated)
	}
	for _, names := range [][]string{w.o.Queues, w.o.Topics} {
		for _, name := range names {
			_, err := address.Name(name)
			errs = append(errs, err)
		}
	}
	// Kubernetes ends the sidecar after the app, in what the app has left. Should somebody end it
	// before, it waits for the app for a third of the time.
	seconds := int64(defaultGraceSeconds)
	if stated := w.pod.Spec.GraceSeconds; stated != nil {
		seconds = min(seconds, *stated)
	}
	mistake(seconds < minGraceSeconds, "terminationGracePeriodSeconds is %d; the app and the sidecar after it need %d", seconds, minGraceSeconds)
	total := time.Duration(seconds) * time.Second
	v.DrainTime, v.StopTimeout = (total / 3).Truncate(time.Second), (total * 4 / 15).Truncate(time.Second)
	if w.admitted {
		return v, errors.Join(errs...)
	}
	mistake(isNoName(w.name()), "it has no name, which its ConfigMap needs, or none that Kubernetes takes")
	mistake(w.meta.Namespace != "" && isNoName(w.meta.Namespace), "its namespace %q is none that Kubernetes takes", w.meta.Namespace)
	v.ConfigMap, v.ObjectNamespace = w.configName(), plain(w.meta.Namespace)
	// A ConfigMap that came later than its Job, which is a hook, would keep the Job waiting.
	for key, value := range w.meta.Annotations {
		if strings.HasPrefix(key, "helm.sh/hook") || strings.HasPrefix(key, "argocd.argoproj.io/hook") || key == "argocd.argoproj.io/sync-wave" {
			v.Hooks[key] = value
		}
	}
	return v, errors.Join(errs...)
}

// plain quotes a name that kubectl would read as another type, as on.
func plain(name string) string {
	if yaml.IsValueNonString(name) {
		return strconv.Quote(name)
	}
	return name
}

// configFile is the configuration file of the sidecar. Queues and topics of annotations replace those
// of a file that the options have.
func (w *workload) configFile() (string, error) {
	made := configOf(w.o.Queues, w.o.Topics)
	if len(w.o.Config) == 0 {
		return made, nil
	}
	if len(w.o.Queues)+len(w.o.Topics) == 0 {
		return string(w.o.Config), nil
	}
	theirs, err := yaml.Parse(string(w.o.Config))
	if errors.Is(err, io.EOF) {
		return made, nil // there is nothing in it
	}
	if err == nil {
		err = theirs.SetMapField(yaml.MustParse(made).Field("monitor").Value.Field("entities").Value, "monitor", "entities")
	}
	if err != nil {
		return "", fmt.Errorf("the configuration of the sidecar: %w", err)
	}
	return theirs.String()
}

// configOf is the configuration of a sidecar that monitors these entities; none: all.
func configOf(queues, topics []string) string {
	if len(queues)+len(topics) == 0 {
		return "# Every queue and topic that the app sends to is monitored.\nmonitor:\n  entities: []\n"
	}
	var b strings.Builder
	b.WriteString("monitor:\n  entities:\n")
	for _, name := range queues {
		fmt.Fprintf(&b, "    - queue: %s\n", strconv.Quote(name))
	}
	for _, name := range topics {
		fmt.Fprintf(&b, "    - topic: %s\n", strconv.Quote(name))
	}
	return b.String()
}

// digest changes with a configuration file. It stands in the pod template, so that the pods are
// replaced then.
func digest(file string) string {
	sum := sha256.Sum256([]byte(file))
	return hex.EncodeToString(sum[:4])
}
