{{- define "pulsekeeper.name" -}}
{{- if contains "pulsekeeper" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-pulsekeeper{{ end }}
{{- end }}

{{/* Labels that never change; the argument is (list $ process). */}}
{{- define "pulsekeeper.selector" -}}
app.kubernetes.io/name: pulsekeeper
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "pulsekeeper.labels" -}}
{{ include "pulsekeeper.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{/* The parts of a pod that all processes and the migration share. */}}
{{- define "pulsekeeper.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
# As in docker-compose.yml. The preStop of web takes 5 s of them.
terminationGracePeriodSeconds: 75
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
  - name: secrets
    secret: {secretName: {{ .Values.existingSecret }}, defaultMode: 0440}
{{- end }}

{{- define "pulsekeeper.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "pulsekeeper.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: secrets, mountPath: /run/secrets, readOnly: true}
{{- $host := required "host is the public name" .Values.host }}
env:
  {{- range list "database_url" "redis_url" "secret_key" "encryption_keys" "email_url" }}
  - {name: {{ upper . }}_FILE, value: /run/secrets/{{ . }}}
  {{- end }}
  - {name: BASE_URL, value: "https://{{ $host }}"}
  - {name: ALLOWED_HOSTS, value: {{ $host | quote }}}
  - {name: EMAIL_FROM, value: {{ .Values.emailFrom | default (printf "pulsekeeper@%s" $host) | quote }}}
  - {name: LOG_FORMAT, value: json}
  {{- with .Values.trustedProxies }}
  - {name: TRUSTED_PROXIES, value: {{ . | quote }}}
  {{- end }}
  {{- with .Values.metricsAllowed }}
  - {name: METRICS_ALLOWED, value: {{ . | quote }}}
  {{- end }}
  {{- range $name, $value := .Values.settings }}
  {{- if or (hasSuffix "_SECRET" $name) (has $name (list "SENTRY_DSN" "HISTORY_DATABASE_URL")) }}
  {{- fail (printf "%s is a secret: add it to the Secret, and set %s_FILE to /run/secrets/ and its key" $name $name) }}
  {{- end }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
{{- end }}
