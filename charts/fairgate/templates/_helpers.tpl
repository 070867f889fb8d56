{{- define "fairgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "fairgate.fullname" -}}
{{- $name := include "fairgate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "fairgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fairgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fairgate.labels" -}}
{{ include "fairgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* A name and a suffix within the 63 characters of a label: a Job's name is one, too. The caller gives name and suffix. */}}
{{- define "fairgate.suffixed" -}}
{{- printf "%s-%s" (.name | trunc (sub 62 (len .suffix) | int) | trimSuffix "-") .suffix -}}
{{- end -}}

{{/* The name of a hook's objects. The caller gives root and hook. */}}
{{- define "fairgate.hookName" -}}
{{- include "fairgate.suffixed" (dict "name" (include "fairgate.fullname" .root) "suffix" .hook) -}}
{{- end -}}

{{/* Labels of a hook: neither the Service nor the disruption budget may select its pod. The caller gives root and hook. */}}
{{- define "fairgate.hookLabels" -}}
app.kubernetes.io/name: {{ include "fairgate.suffixed" (dict "name" (include "fairgate.name" .root) "suffix" .hook) }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* The pod template of a hook's Job, around its container. The caller gives root, hook and pod: its own part as YAML. */}}
{{- define "fairgate.hookPod" -}}
metadata:
  labels:
    {{- include "fairgate.hookLabels" . | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .root.Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 4 }}
  {{- with .root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- .pod | nindent 2 }}
{{- end -}}

{{/* The container of a hook. The caller gives root, name and resources; the arguments follow. */}}
{{- define "fairgate.hookContainer" -}}
name: {{ .name }}
image: {{ include "fairgate.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
resources: {{- toYaml .resources | nindent 2 }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Labels of the page's pods: the Service of the webhooks may not select them. */}}
{{- define "fairgate.pageLabels" -}}
{{- include "fairgate.hookLabels" (dict "root" . "hook" "page") -}}
{{- end -}}

{{- define "fairgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fairgate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "fairgate.certsSecret" -}}
{{- default (printf "%s-certs" (include "fairgate.fullname" .)) .Values.certs.secretName -}}
{{- end -}}

{{- define "fairgate.host" -}}
{{- printf "%s.%s.svc" (include "fairgate.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "fairgate.policyConfigMap" -}}
{{- default (printf "%s-policy" (include "fairgate.fullname" .)) .Values.existingPolicyConfigMap -}}
{{- end -}}

{{/* YAML reads a bare `off` as false. */}}
{{- define "fairgate.enforce" -}}
{{- .Values.enforce | default "off" -}}
{{- end -}}

{{- define "fairgate.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* A role binding: the caller gives root, name and kind (Role, ClusterRole). */}}
{{- define "fairgate.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels: {{- include "fairgate.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "fairgate.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
