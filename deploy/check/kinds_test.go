// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"bytes"
	"encoding/json"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds are what the manifests may hold.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                 func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                func() any { return new(apps.StatefulSet) },
	"apps/v1 DaemonSet":                  func() any { return new(apps.DaemonSet) },
	"batch/v1 Job":                       func() any { return new(batch.Job) },
	"batch/v1 CronJob":                   func() any { return new(batch.CronJob) },
	"v1 ConfigMap":                       func() any { return new(core.ConfigMap) },
	"v1 Service":                         func() any { return new(core.Service) },
	"v1 ServiceAccount":                  func() any { return new(core.ServiceAccount) },
	"policy/v1 PodDisruptionBudget":      func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networking.NetworkPolicy) },
	"v1 Pod":                             func() any { return new(core.Pod) },
	"v1 Secret":                          func() any { return new(core.Secret) },
	"admissionregistration.k8s.io/v1 MutatingWebhookConfiguration": func() any { return new(admissionregistration.MutatingWebhookConfiguration) },
	"cert-manager.io/v1 Certificate":                               func() any { return new(certificate) },
	"cert-manager.io/v1 Issuer":                                    func() any { return new(issuer) },
	"monitoring.coreos.com/v1 ServiceMonitor":                      func() any { return new(serviceMonitor) },
	"monitoring.coreos.com/v1 PodMonitor":                          func() any { return new(podMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule":                      func() any { return new(prometheusRule) },
	"monitoring.coreos.com/v1alpha1 AlertmanagerConfig":            func() any { return new(alertmanagerConfig) },
	"keda.sh/v1alpha1 ScaledObject":                                func() any { return new(scaledObject) },
}

// The kinds of the Prometheus operator, of KEDA and of cert-manager, as far as they are used here: their own modules
// would bring half of Kubernetes along. Field names are those of their references.

type head struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
}

type endpoint struct {
	Port     string `json:"port"`
	Path     string `json:"path"`
	Interval string `json:"interval,omitempty"`
}

type serviceMonitor struct {
	head `json:",inline"`
	Spec struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []endpoint         `json:"endpoints"`
	} `json:"spec"`
}

type podMonitor struct {
	head `json:",inline"`
	Spec struct {
		NamespaceSelector struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Selector            meta.LabelSelector `json:"selector"`
		PodMetricsEndpoints []endpoint         `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type ruleGroups struct {
	Groups []struct {
		Name     string `json:"name"`
		Interval string `json:"interval,omitempty"`
		Rules    []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert         string            `json:"alert,omitempty"`
	Record        string            `json:"record,omitempty"`
	Expr          string            `json:"expr"`
	For           string            `json:"for,omitempty"`
	KeepFiringFor string            `json:"keep_firing_for,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// split returns the alerts and the recorded series of all groups.
func (g *ruleGroups) split() (alerts, records []rule) {
	for _, group := range g.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" {
				alerts = append(alerts, r)
			} else {
				records = append(records, r)
			}
		}
	}
	return alerts, records
}

type prometheusRule struct {
	head `json:",inline"`
	Spec ruleGroups `json:"spec"`
}

type matcher struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	MatchType string `json:"matchType"`
}

type alertRoute struct {
	Receiver       string       `json:"receiver"`
	GroupBy        []string     `json:"groupBy,omitempty"`
	GroupWait      string       `json:"groupWait,omitempty"`
	GroupInterval  string       `json:"groupInterval,omitempty"`
	RepeatInterval string       `json:"repeatInterval,omitempty"`
	Matchers       []matcher    `json:"matchers"`
	Routes         []alertRoute `json:"routes,omitempty"`
}

type alertmanagerConfig struct {
	head `json:",inline"`
	Spec struct {
		Route     alertRoute `json:"route"`
		Receivers []struct {
			Name             string           `json:"name"`
			PagerDutyConfigs []map[string]any `json:"pagerdutyConfigs,omitempty"`
		} `json:"receivers"`
		InhibitRules []struct {
			SourceMatch []matcher `json:"sourceMatch"`
			TargetMatch []matcher `json:"targetMatch"`
			Equal       []string  `json:"equal"`
		} `json:"inhibitRules"`
	} `json:"spec"`
}

type scaledObject struct {
	head `json:",inline"`
	Spec struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		PollingInterval int `json:"pollingInterval"`
		CooldownPeriod  int `json:"cooldownPeriod"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

type issuerRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Group string `json:"group,omitempty"`
}

type certificate struct {
	head `json:",inline"`
	Spec struct {
		SecretName string        `json:"secretName"`
		DNSNames   []string      `json:"dnsNames"`
		IsCA       bool          `json:"isCA"`
		CommonName string        `json:"commonName"`
		Duration   meta.Duration `json:"duration"`
		PrivateKey struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef issuerRef `json:"issuerRef"`
	} `json:"spec"`
}

type issuer struct {
	head `json:",inline"`
	Spec struct {
		SelfSigned *struct{} `json:"selfSigned"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

func asJSON(t interface{ Fatal(...any) }, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
