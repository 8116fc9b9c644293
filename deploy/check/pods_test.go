// SPDX-License-Identifier: Apache-2.0

package check

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
)

// A workload is a pod with a container of Overdue.
type workload struct {
	name      string
	labels    map[string]string
	pod       core.PodSpec
	container core.Container
	native    bool // it is a native sidecar
	objects   []object
	data      string // the folder that stands for the volume with the broker's directory
}

// workloads are the pods of a manifest in which Overdue runs.
func workloads(t *testing.T, all []object) (found []workload) {
	t.Helper()
	for _, o := range all {
		var template core.PodTemplateSpec
		switch v := o.typed.(type) {
		case *apps.Deployment:
			template = v.Spec.Template
			for k, want := range v.Spec.Selector.MatchLabels {
				if template.Labels[k] != want {
					t.Errorf("%s selects %s=%s, its pods have %v", o.name, k, want, template.Labels)
				}
			}
		case *apps.StatefulSet:
			template = v.Spec.Template
			for _, claim := range v.Spec.VolumeClaimTemplates { // a volume of each pod, by its name
				template.Spec.Volumes = append(template.Spec.Volumes, core.Volume{Name: claim.Name})
			}
		case *apps.DaemonSet:
			template = v.Spec.Template
		case *batch.Job:
			template = v.Spec.Template
		case *batch.CronJob:
			template = v.Spec.JobTemplate.Spec.Template
		default:
			continue
		}
		is := func(c core.Container) bool { return c.Name == "overdue" }
		w := workload{name: o.kind + " " + o.name, labels: template.Labels, pod: template.Spec, objects: all}
		if i := slices.IndexFunc(w.pod.InitContainers, is); i >= 0 {
			w.container, w.native = w.pod.InitContainers[i], true
			if policy := w.container.RestartPolicy; policy == nil || *policy != core.ContainerRestartPolicyAlways {
				t.Errorf("%s: a native sidecar needs restartPolicy: Always, or the pod waits for its end", o.name)
			}
		} else if i := slices.IndexFunc(w.pod.Containers, is); i >= 0 {
			w.container = w.pod.Containers[i]
		} else {
			continue
		}
		found = append(found, w)
	}
	return found
}

// env is the environment of the container, with what it refers to in the manifest. A value from a
// secret is "secret".
func (w *workload) env(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range w.container.Env {
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s has %s twice", w.name, e.Name)
		}
		env[e.Name] = e.Value
		if from := e.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
			value, ok := w.configMap(from.ConfigMapKeyRef.Name)[from.ConfigMapKeyRef.Key]
			if !ok {
				t.Errorf("%s: no ConfigMap %s has a key %s", w.name, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key)
			}
			env[e.Name] = value
		} else if from != nil {
			env[e.Name] = "secret"
		}
	}
	return env
}

func (w *workload) configMap(name string) map[string]string {
	for _, o := range w.objects {
		if c, ok := o.typed.(*core.ConfigMap); ok && o.name == name {
			return c.Data
		}
	}
	return nil
}

// file is what the container finds at a path.
func (w *workload) file(t *testing.T, path string) string {
	t.Helper()
	for _, m := range w.container.VolumeMounts {
		name, ok := strings.CutPrefix(path, m.MountPath+"/")
		if !ok {
			continue
		}
		for _, v := range w.pod.Volumes {
			if v.Name == m.Name && v.ConfigMap != nil {
				if text, ok := w.configMap(v.ConfigMap.Name)[name]; ok {
					return text
				}
			}
		}
	}
	t.Errorf("%s: nothing is mounted at %s", w.name, path)
	return ""
}

// check verifies the rules for a pod of Overdue, however the pod was rendered.
func (w *workload) check(t *testing.T) {
	t.Helper()
	c := w.container
	s := c.SecurityContext
	switch {
	case s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Errorf("%s may do more than run: %+v", w.name, s)
	case s.RunAsUser == nil || *s.RunAsUser != imageUser(t):
		t.Errorf("%s does not run as user %d, as the image does", w.name, imageUser(t))
	}
	if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s has no request or limit of memory: %v", w.name, c.Resources)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(w.pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s mounts %s, which is no volume of the pod", w.name, m.Name)
		}
	}
	for what, p := range map[string]*core.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if p == nil {
			if what != "readiness" {
				t.Errorf("%s has no %s probe", w.name, what)
			}
			continue
		}
		i := slices.IndexFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal })
		if i < 0 || w.env(t)["OVERDUE_LISTEN_PROBES"] != ":"+itoa(c.Ports[i].ContainerPort) {
			t.Errorf("%s: the %s probe asks at port %s, listen.probes is %q", w.name, what, p.HTTPGet.Port.StrVal, w.env(t)["OVERDUE_LISTEN_PROBES"])
		}
	}
	// A stop that SIGKILL cuts short is not clean.
	grace := 30 * time.Second
	if g := w.pod.TerminationGracePeriodSeconds; g != nil {
		grace = time.Duration(*g) * time.Second
	}
	if most := setting(t, w.env(t), "OVERDUE_MAX_SIGTERM_DELAY") + setting(t, w.env(t), "OVERDUE_SHUTDOWN_TIMEOUT"); most >= grace {
		t.Errorf("%s: a stop may take %v, the pod has %v", w.name, most, grace)
	}
	checkCommand(t, w.name, c.Args, w.env(t))
}

var userLine = regexp.MustCompile(`(?m)^\tuser += (\d+) `)

// imageUser is the user that deploy/release gives the image.
func imageUser(t *testing.T) int64 {
	t.Helper()
	user := userLine.FindStringSubmatch(read(t, "../release/image.go"))
	if user == nil {
		t.Fatal("deploy/release says no user by number")
	}
	return atoi(t, user[1])
}
