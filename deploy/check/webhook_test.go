// SPDX-License-Identifier: Apache-2.0

package check

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const withWebhook = least + "webhook:\n  enabled: true\n"

// A hook is what the chart installs for the webhook.
type hook struct {
	all           []object
	configuration *admissionregistration.MutatingWebhookConfiguration
	service       *core.Service
	deployment    *apps.Deployment
	policy        *networking.NetworkPolicy
}

func hookOf(t *testing.T, values string) hook {
	t.Helper()
	h := hook{all: objects(t, mustHelm(t, overdueChart(t), "v1.34.0", values))}
	for _, o := range h.all {
		switch v := o.typed.(type) {
		case *admissionregistration.MutatingWebhookConfiguration:
			h.configuration = v
		case *core.Service:
			if strings.HasSuffix(v.Name, "-webhook") {
				h.service = v
			}
		case *apps.Deployment:
			if strings.HasSuffix(v.Name, "-webhook") {
				h.deployment = v
			}
		case *networking.NetworkPolicy:
			if strings.HasSuffix(v.Name, "-webhook") {
				h.policy = v
			}
		}
	}
	if h.configuration == nil || h.service == nil || h.deployment == nil || h.policy == nil {
		t.Fatalf("the chart has no webhook with %s", values)
	}
	return h
}

func (h *hook) container() core.Container { return h.deployment.Spec.Template.Spec.Containers[0] }

// arg is the value of a flag of the container.
func (h *hook) arg(name string) string {
	for _, a := range h.container().Args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
	}
	return ""
}

func TestTheChartHasNoWebhookUnlessAsked(t *testing.T) {
	for _, o := range objects(t, mustHelm(t, overdueChart(t), "v1.34.0", everything)) {
		switch o.typed.(type) {
		case *admissionregistration.MutatingWebhookConfiguration, *core.Secret, *certificate, *issuer:
			t.Errorf("%s %s is there", o.kind, o.name)
		}
	}
	if _, err := helm(t, overdueChart(t), "v1.28.0", withWebhook); err == nil || !strings.Contains(err.Error(), "needs Kubernetes 1.29") {
		t.Errorf("before native sidecars: %v", err)
	}
}

// The configuration leads to the Service, that to the pods, and those have what their flags name.
func TestThePartsOfTheWebhookFitTogether(t *testing.T) {
	for mode, values := range map[string]string{
		"least":         withWebhook,
		"an authority":  withWebhook + "  certManager: {issuerRef: {name: ca, kind: ClusterIssuer}}\n",
		"fail":          withWebhook + "  failurePolicy: Fail\n  replicas: 1\n",
		"secret":        withWebhook + "namespaceSecret: {name: servicebus}\n",
		"webhook alone": withWebhook + "monitor: {enabled: false}\nserviceAccount: {create: false}\n",
	} {
		h := hookOf(t, values)
		w, c := h.configuration.Webhooks[0], h.container()
		to := w.ClientConfig.Service
		pod := labels.Set(h.deployment.Spec.Template.Labels)
		if to.Name != h.service.Name || to.Namespace != "default" || *to.Port != h.service.Spec.Ports[0].Port || !labels.SelectorFromSet(h.service.Spec.Selector).Matches(pod) {
			t.Errorf("%s: the configuration leads to %+v, the Service is %s %+v, the pods have %v", mode, to, h.service.Name, h.service.Spec, pod)
		}
		if i := slices.IndexFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == h.service.Spec.Ports[0].TargetPort.StrVal }); i < 0 || c.Ports[i].ContainerPort != 8443 {
			t.Errorf("%s: the Service leads to port %s, the container has %v", mode, h.service.Spec.Ports[0].TargetPort.StrVal, c.Ports)
		}
		if policy := h.policy.Spec; len(policy.Egress) > 0 || policy.Ingress[0].Ports[0].Port.StrVal != "webhook" || len(policy.Ingress[0].From) > 0 {
			t.Errorf("%s: the network policy is %+v", mode, policy)
		}
		if (string(*w.FailurePolicy) == "Fail") != slices.Contains(c.Args, "--refuse") {
			t.Errorf("%s: failurePolicy is %s, and the flags are %v", mode, *w.FailurePolicy, c.Args)
		}
		// Webhooks are called in the order of these names.
		if h.configuration.Name > "azure-wi-webhook-mutating-webhook-configuration" {
			t.Errorf("%s: %s comes after the webhook that looks for the label that it adds", mode, h.configuration.Name)
		}
		selector, err := meta.LabelSelectorAsSelector(w.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"prod": true, "kube-system": false, "default": false} { // default is the release's
			if got := selector.Matches(labels.Set{"kubernetes.io/metadata.name": name, "overdue.sidecar/inject": "enabled"}); got != want {
				t.Errorf("%s: pods of the namespace %s are seen: %v, want %v", mode, name, got, want)
			}
		}
		if selector.Matches(labels.Set{"kubernetes.io/metadata.name": "other"}) {
			t.Errorf("%s: a namespace without the label is seen", mode)
		}
		if issued := h.configuration.Annotations["cert-manager.io/inject-ca-from"]; issued != "default/"+h.deployment.Name {
			t.Errorf("%s: caBundle comes from %q", mode, issued)
		}
		h.checkIssuing(t, mode)
		if token := h.deployment.Spec.Template.Spec.AutomountServiceAccountToken; *token {
			t.Errorf("%s: the pod has a token", mode)
		}
		checkCommand(t, mode, c.Args, nil)
	}
	w := hookOf(t, least+"webhook: {enabled: true, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}}\n").configuration.Webhooks[0]
	selector, err := meta.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil || !selector.Matches(labels.Set{"kubernetes.io/metadata.name": "other"}) || selector.Matches(labels.Set{"kubernetes.io/metadata.name": "kube-system"}) {
		t.Errorf("a selector of one's own is %v, %v", selector, err)
	}
}

// checkIssuing follows the certificate to its authority.
func (h *hook) checkIssuing(t *testing.T, mode string) {
	t.Helper()
	certificates, issuers := map[string]*certificate{}, map[string]*issuer{}
	for _, o := range h.all {
		switch v := o.typed.(type) {
		case *certificate:
			certificates[v.Name] = v
		case *issuer:
			issuers[v.Name] = v
		}
	}
	c := certificates[h.deployment.Name]
	if c == nil || !slices.Equal(c.Spec.DNSNames, []string{h.service.Name + ".default.svc"}) || c.Spec.SecretName != h.deployment.Spec.Template.Spec.Volumes[1].Secret.SecretName {
		t.Errorf("%s: the certificate is %+v", mode, c)
		return
	}
	if c.Spec.IssuerRef.Kind == "ClusterIssuer" {
		if len(issuers) > 0 || len(certificates) > 1 {
			t.Errorf("%s: an authority of one's own is there besides", mode)
		}
		return
	}
	authority := issuers[c.Spec.IssuerRef.Name]
	if authority == nil || authority.Spec.CA == nil {
		t.Errorf("%s: the certificate is from %+v", mode, c.Spec.IssuerRef)
		return
	}
	ca := certificates[authority.Spec.CA.SecretName]
	if ca == nil || !ca.Spec.IsCA || ca.Spec.Duration.Hours() < 5*365*24 || issuers[ca.Spec.IssuerRef.Name] == nil || issuers[ca.Spec.IssuerRef.Name].Spec.SelfSigned == nil {
		t.Errorf("%s: the authority is %+v", mode, ca)
	}
}

// An API server that trusts the certificate gets the sidecar that `overdue inject` adds to manifests.
func TestTheWebhookAddsTheSidecarOfInject(t *testing.T) {
	h := hookOf(t, withWebhook+"config: {onMonitorDown: refuse, monitor: {entities: [{queue: every}]}}\n")
	address, p := h.start(t)
	manifest := read(t, "testdata/inject/app.yaml")
	injected := workloads(t, objects(t, inject(t, []byte(manifest), "--image", h.arg("--image"), "--namespace", h.arg("--namespace"))))
	for _, o := range objects(t, []byte(manifest)) {
		template, name := templateOf(o)
		if template == nil {
			continue
		}
		pod := &core.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.GenerateName, pod.Namespace = o.name+"-7d9f8b6c5-", "prod"
		pod.OwnerReferences = []meta.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "y"}}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		for k, v := range annotationsOf(o) { // a webhook sees the pod alone
			pod.Annotations[k] = v
		}
		r, err := h.call(t, address, pod, false)
		if err != nil {
			t.Fatal(err)
		}
		is := patched(t, pod, r)
		var volumes []core.Volume
		for _, v := range is.Spec.Volumes {
			if v.Name != "overdue-config" {
				volumes = append(volumes, v)
				continue
			}
			from := v.DownwardAPI.Items[0]
			const key = "overdue.sidecar/config"
			if from.Path != "overdue.yaml" || from.FieldRef.FieldPath != "metadata.annotations['"+key+"']" {
				t.Errorf("%s: the configuration comes from %+v", name, from)
			}
			checkFile(t, name, is.Annotations[key], "--role", "proxy", "--namespace", "contoso.servicebus.windows.net")
			queues := is.Annotations["overdue.sidecar/queues"]
			if has := strings.Contains(is.Annotations[key], "every"); has != (queues == "") || !strings.Contains(is.Annotations[key], "onMonitorDown: refuse") {
				t.Errorf("%s, with the queues %q, has the configuration\n%s", name, queues, is.Annotations[key])
			}
		}
		if len(volumes) != len(is.Spec.Volumes)-1 {
			t.Errorf("%s: volumes %+v", name, is.Spec.Volumes)
		}
		i := slices.IndexFunc(injected, func(w workload) bool { return w.name == o.kind+" "+o.name })
		if i < 0 {
			t.Fatalf("`overdue inject` leaves out %s", name)
		}
		if x, y := asJSON(t, is.Spec.InitContainers), asJSON(t, injected[i].pod.InitContainers); x != y {
			t.Errorf("%s: the webhook has %s\n`overdue inject` %s", name, x, y)
		}
		if x, y := is.Labels["azure.workload.identity/use"], injected[i].labels["azure.workload.identity/use"]; x != y {
			t.Errorf("%s: the label for the identity is %q, with `overdue inject` %q", name, x, y)
		}
		// Asked again because another webhook has changed the pod, it leaves the pod as it is.
		if r, err = h.call(t, address, is, true); err != nil || !r.Response.Allowed || r.Response.Patch != nil {
			t.Errorf("%s a second time: %+v, %v", name, r, err)
		}
	}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "node", Namespace: "prod"}, Spec: core.PodSpec{HostNetwork: true, Containers: []core.Container{{Name: "app"}}}}
	if r, err := h.call(t, address, pod, false); err != nil || !r.Response.Allowed || r.Response.Patch != nil || len(r.Response.Warnings) != 1 {
		t.Errorf("a pod that cannot have it: %+v, %v; want it created, and a warning", r, err)
	}
	p.answers(t, "/metrics", `overdue_injections_total{result="failed"} 1`)
	p.end(t) // it goes on for some seconds
}

// With failurePolicy Fail a pod that cannot have the sidecar is refused, and says why.
func TestTheWebhookRefusesWhereItsPolicySaysSo(t *testing.T) {
	h := hookOf(t, least+"webhook: {enabled: true, failurePolicy: Fail}\n")
	address, p := h.start(t)
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "node", Namespace: "prod"}, Spec: core.PodSpec{HostNetwork: true, Containers: []core.Container{{Name: "app"}}}}
	r, err := h.call(t, address, pod, false)
	if err != nil || r.Response.Allowed || r.Response.Result == nil || r.Response.Result.Code != http.StatusForbidden || !strings.Contains(r.Response.Result.Message, "network of the node") {
		t.Errorf("a pod that cannot have the sidecar: %+v, %v; want it refused", r, err)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("SIGINT: %v", err)
	}
}

func templateOf(o object) (*core.PodTemplateSpec, string) {
	switch v := o.typed.(type) {
	case *apps.Deployment:
		return &v.Spec.Template, o.kind + " " + o.name
	case *apps.StatefulSet:
		return &v.Spec.Template, o.kind + " " + o.name
	case *apps.DaemonSet:
		return &v.Spec.Template, o.kind + " " + o.name
	}
	return nil, ""
}

func annotationsOf(o object) map[string]string {
	return o.typed.(meta.Object).GetAnnotations()
}

// `helm test` runs the doctor as the monitor runs.
func TestTheTestPodIsTheMonitorsDoctor(t *testing.T) {
	for name, values := range map[string]string{"least": least, "everything": everything} {
		all := objects(t, mustHelm(t, overdueChart(t), "v1.34.0", values))
		i := slices.IndexFunc(all, func(o object) bool { return o.kind == "Pod" })
		if i < 0 {
			t.Fatalf("%s: there is no test", name)
		}
		pod, monitor := all[i].typed.(*core.Pod), workloads(t, all)[0]
		c := pod.Spec.Containers[0]
		if pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != core.RestartPolicyNever || pod.Spec.ServiceAccountName != monitor.pod.ServiceAccountName ||
			pod.Labels["azure.workload.identity/use"] != monitor.labels["azure.workload.identity/use"] {
			t.Errorf("%s: the test is %+v", name, pod)
		}
		for what, pair := range map[string][2]any{
			"image": {c.Image, monitor.container.Image}, "security": {c.SecurityContext, monitor.container.SecurityContext},
			"mounts": {c.VolumeMounts, monitor.container.VolumeMounts}, "volumes": {pod.Spec.Volumes, monitor.pod.Volumes}, "from": {c.EnvFrom, monitor.container.EnvFrom},
		} {
			if x, y := asJSON(t, pair[0]), asJSON(t, pair[1]); x != y {
				t.Errorf("%s, %s: the test has %s, the monitor %s", name, what, x, y)
			}
		}
		checkCommand(t, "the test", c.Args, nil)
		if labels.SelectorFromSet(labels.Set{"app.kubernetes.io/component": "monitor"}).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s: the disruption budget of the monitor counts the test", name)
		}
	}
	// The containers run: the broker has the queues that the doctor wants to see.
	h := objects(t, mustHelm(t, overdueChart(t), "v1.34.0", least))
	pod := h[slices.IndexFunc(h, func(o object) bool { return o.kind == "Pod" })].typed.(*core.Pod)
	namespace := startBroker(t, "--config", writeFile(t, "broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\n"), "--monitor-queue", "overdue-monitor")
	doctor := &process{of: &workload{name: pod.Name}}
	args := slices.Clone(pod.Spec.Containers[0].Args)
	args[slices.Index(args, "--config")+1] = writeFile(t, workloads(t, h)[0].file(t, "/etc/overdue/overdue.yaml"))
	doctor.run(t, map[string]string{"HOME": t.TempDir(), "OVERDUE_NAMESPACE": namespace, "OVERDUE_LISTEN_PROBES": ":9096"}, args)
	if err := doctor.cmd.Wait(); err != nil {
		t.Errorf("the doctor finds fault with a good namespace: %v\n%s", err, read(t, doctor.log))
	}
}
