{{/* Names. SPDX-License-Identifier: Apache-2.0 */}}
{{/* The rules of files/overdue.rules.yml, with the severities, labels and runbook of the values. */}}
{{- define "overdue.rules" -}}
{{- $values := .Values.prometheusRule }}
{{- $rest := deepCopy $values.severity }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/overdue.rules.yml" | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if hasKey $rule "record" }}
{{- $rules = append $rules $rule }}
{{- else }}
{{- $severity := get $values.severity $rule.alert | default $rule.labels.severity }}
{{- $_ := unset $rest $rule.alert }}
{{- $section := lower $rule.alert }}
{{- $runbook := printf "%s#%s" $values.runbookURL $section }}
{{- if contains "{alert}" $values.runbookURL }}
{{- $runbook = replace "{alert}" $section $values.runbookURL }}
{{- end }}
{{- $labels := deepCopy $values.alertLabels }}
{{- if contains "group_left (team, service" $rule.expr }}{{/* those of the queue count more */}}
{{- range $name := list "team" "service" }}
{{- with get $labels $name }}
{{- $_ = set $labels $name (printf "{{ with $labels.%s }}{{ . }}{{ else }}%s{{ end }}" $name .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ = set $rule "labels" (merge (dict "severity" $severity) $labels $rule.labels) }}
{{- if $.Values.alertmanagerConfig.enabled }}{{/* the operator routes only alerts of the namespace of the AlertmanagerConfig */}}
{{- $_ = set $rule.labels "namespace" $.Release.Namespace }}
{{- end }}
{{- $_ = set $rule.annotations "runbook_url" (regexReplaceAllLiteral "docs/operate/troubleshoot.md#[a-z]+" $rule.annotations.runbook_url $runbook) }}
{{- if ne $severity "none" }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- end }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- if $rest }}
{{- fail (printf "prometheusRule.severity names %s, which is no alert of deploy/prometheus/overdue.rules.yml" (keys $rest | sortAlpha | join ", ")) }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}

{{/* Matchers of Alertmanager as the operator writes them, in JSON. */}}
{{- define "overdue.matchers" -}}
{{- $form := "^([a-z_]+)([!=]=?~?)\"(.*)\"$" }}
{{- $all := list }}
{{- range . }}
{{- $all = append $all (dict "name" (regexReplaceAll $form . "${1}") "matchType" (regexReplaceAll $form . "${2}") "value" (regexReplaceAll $form . "${3}")) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* A route of Alertmanager as the operator writes it, in JSON. */}}
{{- define "overdue.route" -}}
{{- $route := dict "receiver" .receiver }}
{{- range $theirs, $ours := dict "group_by" "groupBy" "group_wait" "groupWait" "group_interval" "groupInterval" "repeat_interval" "repeatInterval" }}
{{- with get $ $theirs }}
{{- $_ := set $route $ours . }}
{{- end }}
{{- end }}
{{- $_ := set $route "matchers" (include "overdue.matchers" .matchers | fromJsonArray) }}
{{- $routes := list }}
{{- range get . "routes" | default list }}
{{- $routes = append $routes (include "overdue.route" . | fromJson) }}
{{- end }}
{{- with $routes }}
{{- $_ := set $route "routes" . }}
{{- end }}
{{- toJson $route }}
{{- end }}

{{/* files/alertmanager.yml without what is not about Overdue, with the receivers of the values. */}}
{{- define "overdue.alertmanager" -}}
{{- $file := .Files.Get "files/alertmanager.yml" | fromYaml }}
{{- $receivers := list }}
{{- $rest := deepCopy .Values.alertmanagerConfig.receivers }}
{{- range $file.receivers }}
{{- if ne .name $file.route.receiver }}
{{- $receivers = append $receivers (merge (dict "name" .name) (get $.Values.alertmanagerConfig.receivers .name | default dict)) }}
{{- $_ := unset $rest .name }}
{{- end }}
{{- end }}
{{- if $rest }}
{{- fail (printf "alertmanagerConfig.receivers names %s, which is no receiver of deploy/prometheus/alertmanager.yml" (keys $rest | sortAlpha | join ", ")) }}
{{- end }}
{{- $inhibit := list }}
{{- range $file.inhibit_rules }}
{{- $inhibit = append $inhibit (dict "sourceMatch" (include "overdue.matchers" .source_matchers | fromJsonArray) "targetMatch" (include "overdue.matchers" .target_matchers | fromJsonArray) "equal" (get . "equal" | default list)) }}
{{- end }}
{{- toYaml (dict "route" (include "overdue.route" (first $file.route.routes) | fromJson) "receivers" $receivers "inhibitRules" $inhibit) }}
{{- end }}

{{- define "overdue.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* What the workload of the release is. With the embedded broker it is proxy and monitor as well. */}}
{{- define "overdue.component" -}}
{{- ternary "broker" "monitor" .Values.broker.enabled }}
{{- end }}

{{- define "overdue.workload" -}}
{{ include "overdue.fullname" . }}-{{ include "overdue.component" . }}
{{- end }}

{{- define "overdue.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ include "overdue.component" . }}
{{- end }}

{{- define "overdue.webhook.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end }}

{{- define "overdue.labels" -}}
{{ include "overdue.selector" . }}
{{ include "overdue.commonLabels" . }}
{{- end }}

{{- define "overdue.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "overdue.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "overdue.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "overdue.image" -}}
{{- $repository := required "give image.repository: where you have pushed the image to, as registry.example.com/overdue" .Values.image.repository -}}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}
{{- else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What a container of Overdue may do: nothing but run. */}}
{{- define "overdue.securityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Which namespace, for monitor and sidecar alike. */}}
{{- define "overdue.namespaceEnv" -}}
{{- if .Values.namespaceSecret.name -}}
- name: OVERDUE_NAMESPACE
  valueFrom:
    secretKeyRef: {name: {{ .Values.namespaceSecret.name }}, key: {{ .Values.namespaceSecret.key }}}
{{- else -}}
- name: OVERDUE_NAMESPACE
  value: {{ required "give namespace (contoso.servicebus.windows.net, for workload identity) or namespaceSecret.name" .Values.namespace | quote }}
{{- end }}
- name: OVERDUE_LISTEN_PROBES
  value: ":9096"
{{- end }}

{{/* The embedded broker instead of a namespace. The directory is a folder of the volume, which has the history beside it. */}}
{{- define "overdue.brokerEnv" -}}
{{- if or .Values.namespace .Values.namespaceSecret.name .Values.webhook.enabled (not .Values.monitor.enabled) -}}
{{- fail "broker.enabled is for a release without namespace, namespaceSecret and webhook, with monitor.enabled" }}
{{- end -}}
- name: OVERDUE_BROKER_ENABLED
  value: "true"
- name: OVERDUE_BROKER_DIRECTORY
  value: /var/lib/overdue/broker
- name: OVERDUE_LISTEN_PROBES
  value: ":9096"
{{- end }}

{{/* The configuration file. */}}
{{- define "overdue.config" -}}
{{ toYaml .Values.config }}
{{- end }}

{{/* The same, with the endpoint that apps have to the embedded broker. */}}
{{- define "overdue.workloadConfig" -}}
{{- include "overdue.config" . }}
{{- if .Values.broker.enabled }}
listen:
  amqps: ":5671"
  tls: {certFile: /run/secrets/tls/tls.crt, keyFile: /run/secrets/tls/tls.key}
  keys:
    {{- range required "broker.enabled needs broker.keys: an app without a key is refused" .Values.broker.keys }}
    - {{ merge (dict "keyFile" (printf "/run/secrets/keys/%s" .name)) . | toJson }}
    {{- end }}
{{- end }}
{{- end }}
