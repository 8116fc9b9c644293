{{/*
The proxy beside an app, for charts that have this one as a dependency. SPDX-License-Identifier: Apache-2.0

  spec:
    initContainers:
      {{- include "overdue.sidecar.initContainers" .Subcharts.overdue | nindent 6 }}
    containers:
      {{- include "overdue.sidecar.containers" .Subcharts.overdue | nindent 6 }}
      - name: app
        …
    volumes:
      {{- include "overdue.sidecar.volumes" .Subcharts.overdue | nindent 6 }}

One of the first two is empty. The pod gets the labels of overdue.sidecar.labels, and the chart the template
overdue.sidecar.configMap once.
*/}}

{{/* "true" where the sidecar is a native one. */}}
{{- define "overdue.sidecar.native" -}}
{{- $native := toString .Values.sidecar.native -}}
{{- if eq $native "auto" }}{{ semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version }}{{ else }}{{ $native }}{{ end }}
{{- end }}

{{- define "overdue.sidecar.configMapName" -}}
{{ include "overdue.fullname" . }}-sidecar
{{- end }}

{{- define "overdue.sidecar.labels" -}}
overdue.sidecar: "true"
{{- if .Values.workloadIdentity.enabled }}
azure.workload.identity/use: "true"
{{- end }}
{{- end }}

{{- define "overdue.sidecar.initContainers" -}}
{{- if eq (include "overdue.sidecar.native" .) "true" }}{{ include "overdue.sidecar.container" . }}{{ end }}
{{- end }}

{{- define "overdue.sidecar.containers" -}}
{{- if ne (include "overdue.sidecar.native" .) "true" }}{{ include "overdue.sidecar.container" . }}{{ end }}
{{- end }}

{{- define "overdue.sidecar.volumes" -}}
- name: overdue-config
  configMap: {name: {{ include "overdue.sidecar.configMapName" . }}}
- name: overdue-data
  emptyDir: {}
{{- with .Values.sidecar.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "overdue.sidecar.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "overdue.sidecar.configMapName" . }}
data:
  overdue.yaml: |
    {{- include "overdue.config" . | nindent 4 }}
{{- end }}

{{- define "overdue.sidecar.container" -}}
{{- $native := eq (include "overdue.sidecar.native" .) "true" -}}
- name: overdue
  image: {{ include "overdue.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [proxy, --config, /etc/overdue/overdue.yaml{{ range .Values.sidecar.extraArgs }}, {{ . | quote }}{{ end }}]
  {{- if $native }}
  restartPolicy: Always
  {{- end }}
  env:
    {{- include "overdue.namespaceEnv" . | nindent 4 }}
    - name: OVERDUE_MIN_SIGTERM_DELAY
      value: {{ .Values.sidecar.minSigtermDelay }}
    - name: OVERDUE_MAX_SIGTERM_DELAY
      value: {{ .Values.sidecar.maxSigtermDelay }}
    - name: OVERDUE_SHUTDOWN_TIMEOUT
      value: {{ .Values.sidecar.shutdownTimeout }}
    {{- with .Values.sidecar.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.sidecar.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: overdue-probes, containerPort: 9096}
  startupProbe: # the app starts when the endpoints are open
    httpGet: {path: /startupz, port: overdue-probes}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: overdue-probes}
  {{- if .Values.sidecar.readiness }}
  readinessProbe:
    httpGet: {path: /readyz, port: overdue-probes}
  {{- end }}
  {{- if not $native }}
  lifecycle:
    postStart: # containers start one after the other: those below it wait
      exec: {command: [/overdue, wait, --for, serving]}
  {{- end }}
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    {{- include "overdue.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: overdue-config, mountPath: /etc/overdue, readOnly: true}
    - {name: {{ .Values.sidecar.journalVolume | default "overdue-data" }}, mountPath: /var/lib/overdue}
    {{- with .Values.sidecar.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
