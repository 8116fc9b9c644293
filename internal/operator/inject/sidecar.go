// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/address"

	"go.yaml.in/yaml/v3"
)

// Names in the pod.
const (
	containerName = "overdue"
	configVolume  = "overdue-config"
	dataVolume    = "overdue-data"
	probePort     = "overdue-probes"
)

// The processor time and memory that the sidecar requests, and the memory that it gets at most.
const (
	defaultCPU      = "50m"
	defaultMemory   = "64Mi"
	defaultMemoryTo = "512Mi"
)

const (
	// grace is terminationGracePeriodSeconds where a pod states none.
	grace = 30 * time.Second
	// leastGrace is the shortest in which an app and then the sidecar can end.
	leastGrace = 5 * time.Second
)

// sidecar is what is particular about the container.
type sidecar struct {
	image, namespace       string
	secret, key            string // of the connection string; "": the namespace is stated
	cpu, memory, memoryTo  string
	drainTime, stopTimeout time.Duration
}

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?$`)
	keyName  = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

// sidecar reads the options of w.
func (w *workload) sidecar() (s sidecar, err error) {
	s = sidecar{image: w.o.Image, namespace: w.o.Namespace, cpu: defaultCPU, memory: defaultMemory, memoryTo: defaultMemoryTo}
	var errs []error
	mistake := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	secret, isSecret := strings.CutPrefix(w.o.Identity, IdentitySecret)
	switch {
	case isSecret:
		var ok bool
		if s.secret, s.key, ok = strings.Cut(secret, "/"); !ok || !hostName.MatchString(s.secret) || !keyName.MatchString(s.key) {
			mistake("identity %q is not secret:NAME/KEY", w.o.Identity)
		}
	case w.o.Identity != IdentityWorkload:
		mistake("identity %q is neither %q nor secret:NAME/KEY", w.o.Identity, IdentityWorkload)
	case s.namespace == "":
		mistake("the Service Bus namespace is unknown; state it with --namespace or %s", annotateSpace)
	case !hostName.MatchString(s.namespace) || !strings.Contains(s.namespace, "."):
		mistake("namespace %q is not a fully qualified name, as contoso.servicebus.windows.net", s.namespace)
	}
	if s.image == "" || strings.ContainsAny(s.image, " \t\n") {
		mistake("image %q is not the name of an image", s.image)
	}
	if v := w.annotation(annotateCPU); v != "" {
		s.cpu = v
	}
	if v := w.annotation(annotateMemory); v != "" {
		s.memory, s.memoryTo = v, v
	}
	for _, v := range []string{s.cpu, s.memory} {
		if !quantity.MatchString(v) {
			mistake("%q is not a quantity, as 50m or 128Mi", v)
		}
	}
	for _, name := range append(append([]string(nil), w.o.Queues...), w.o.Topics...) {
		if _, err := address.Name(name); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, s.end(text(w.pod, "spec", "terminationGracePeriodSeconds")))
	return s, errors.Join(errs...)
}

// end divides the time in which a pod has to end. Kubernetes ends the sidecar after the app, in what
// the app has left. Should somebody end it before, it waits for the app for drainTime.
func (s *sidecar) end(stated string) error {
	total := grace
	if stated != "" {
		seconds, err := strconv.Atoi(stated)
		if err != nil {
			return fmt.Errorf("terminationGracePeriodSeconds is %q, which is not a whole number", stated)
		}
		total = min(grace, time.Duration(seconds)*time.Second)
	}
	if total < leastGrace {
		return fmt.Errorf("terminationGracePeriodSeconds is %s; the app and the sidecar after it need %.0f", stated, leastGrace.Seconds())
	}
	s.drainTime = (total / 3).Truncate(time.Second)
	s.stopTimeout = (total * 4 / 15).Truncate(time.Second)
	return nil
}

// object is a mapping in a manifest, whose keys keep their order.
type object []pair

type pair struct {
	key   string
	value any
}

// node returns the YAML of a value.
func node(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case object:
		m := &yaml.Node{Kind: yaml.MappingNode}
		for _, p := range v {
			value, err := node(p.value)
			if err != nil {
				return nil, err
			}
			set(m, p.key, value)
		}
		return m, nil
	case []object:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, o := range v {
			item, err := node(o)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, item)
		}
		return list, nil
	case *yaml.Node:
		return v, nil
	}
	n := &yaml.Node{}
	return n, n.Encode(v)
}

// node is the container.
func (s *sidecar) node() (*yaml.Node, error) {
	from := object{{"name", "OVERDUE_NAMESPACE"}, {"value", s.namespace}}
	if s.secret != "" {
		from = object{{"name", "OVERDUE_NAMESPACE"}, {"valueFrom", object{{"secretKeyRef", object{{"name", s.secret}, {"key", s.key}}}}}}
	}
	env := func(name, value string) object { return object{{"name", name}, {"value", value}} }
	probe := func(path string, more ...pair) object {
		return append(object{{"httpGet", object{{"path", path}, {"port", probePort}}}}, more...)
	}
	return node(object{
		{"name", containerName},
		{"image", s.image},
		{"restartPolicy", "Always"},
		{"args", []string{"proxy", "--config", "/etc/overdue/overdue.yaml"}},
		{"env", []object{
			from, env("OVERDUE_LISTEN_PROBES", ":9096"),
			env("OVERDUE_MAX_SIGTERM_DELAY", s.drainTime.String()), env("OVERDUE_SHUTDOWN_TIMEOUT", s.stopTimeout.String()),
		}},
		{"ports", []object{{{"name", probePort}, {"containerPort", 9096}}}},
		{"startupProbe", probe("/startupz", pair{"periodSeconds", 1}, pair{"failureThreshold", 60})},
		{"livenessProbe", probe("/livez")},
		{"resources", object{{"requests", object{{"cpu", s.cpu}, {"memory", s.memory}}}, {"limits", object{{"memory", s.memoryTo}}}}},
		{"securityContext", object{
			{"allowPrivilegeEscalation", false}, {"capabilities", object{{"drop", []string{"ALL"}}}}, {"readOnlyRootFilesystem", true},
			{"runAsNonRoot", true}, {"runAsUser", 65532}, {"runAsGroup", 65532}, {"seccompProfile", object{{"type", "RuntimeDefault"}}},
		}},
		{"volumeMounts", []object{
			{{"name", configVolume}, {"mountPath", "/etc/overdue"}, {"readOnly", true}}, {{"name", dataVolume}, {"mountPath", "/var/lib/overdue"}},
		}},
	})
}

func emptyDir() pair {
	return pair{"emptyDir", &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}}
}

func volumeOf(name string, source pair) *yaml.Node { return mustNode(object{{"name", name}, source}) }

// configSource is where the volume with the configuration comes from.
func (w *workload) configSource() pair {
	if w.admitted {
		from := object{{"fieldPath", "metadata.annotations['" + annotateConfig + "']"}}
		return pair{"downwardAPI", object{{"items", []object{{{"path", "overdue.yaml"}, {"fieldRef", from}}}}}}
	}
	return pair{"configMap", object{{"name", w.configName()}}}
}

// mustNode is for values whose parts all have a node.
func mustNode(v any) *yaml.Node {
	n, err := node(v)
	if err != nil {
		panic(err) // it is all texts
	}
	return n
}

// configFile is the configuration file of the sidecar. Queues and topics of annotations replace those
// of a file that the options have.
func (w *workload) configFile() (string, error) {
	made := configFile(w.o.Queues, w.o.Topics)
	if len(w.o.Config) == 0 {
		return made, nil
	}
	if len(w.o.Queues)+len(w.o.Topics) == 0 {
		return string(w.o.Config), nil
	}
	var theirs, ours yaml.Node
	if err := errors.Join(yaml.Unmarshal(w.o.Config, &theirs), yaml.Unmarshal([]byte(made), &ours)); err != nil {
		return "", fmt.Errorf("the configuration of the sidecar: %w", err)
	}
	if theirs.Kind != yaml.DocumentNode || theirs.Content[0].Kind != yaml.MappingNode {
		return made, nil // there is nothing in it
	}
	monitor, _ := ensure(theirs.Content[0], "monitor", yaml.MappingNode)
	set(monitor, "entities", get(get(ours.Content[0], "monitor"), "entities"))
	file, err := yaml.Marshal(&theirs)
	return string(file), err
}

// digest changes with a configuration file. It stands in the pod template, so that the pods are
// replaced then.
func digest(file string) string {
	sum := sha256.Sum256([]byte(file))
	return hex.EncodeToString(sum[:4])
}

// configMap is the ConfigMap with the configuration file.
func (w *workload) configMap(file string) *yaml.Node {
	meta := object{{"name", w.configName()}}
	if namespace := text(w.root, "metadata", "namespace"); namespace != "" {
		meta = append(meta, pair{"namespace", namespace})
	}
	meta = append(meta, pair{"labels", object{{managedByLabel, managedBy}}})
	content := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: file, Style: yaml.LiteralStyle}
	return mustNode(object{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", meta}, {"data", object{{"overdue.yaml", content}}}})
}

// configFile is the configuration of a sidecar that monitors these entities; none: all.
func configFile(queues, topics []string) string {
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
