{{/* Names. SPDX-License-Identifier: Apache-2.0 */}}
{{- define "overdue.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "overdue.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: monitor
{{- end }}

{{- define "overdue.labels" -}}
{{ include "overdue.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "overdue.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "overdue.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "overdue.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
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

{{/* The configuration file. */}}
{{- define "overdue.config" -}}
{{ toYaml .Values.config }}
{{- end }}
