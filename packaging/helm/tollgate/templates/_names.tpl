{{/* The name of every object. */}}
{{- define "tollgate.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* The labels that select the pods. */}}
{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The whole configuration: what the values say, and what the chart knows. */}}
{{- define "tollgate.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $listen := dict "http" "0.0.0.0:8080" }}
{{- with .Values.extraPorts.postfix }}
{{- $_ := set $listen "postfix" (printf "0.0.0.0:%v" .) }}
{{- end }}
{{- $_ := set $config "listen" $listen }}
{{- $keys := list (dict "name" "admin" "role" "admin" "token_file" "/etc/tollgate/secrets/admin/token") }}
{{- if .Values.readTokenSecret.name }}
{{- $keys = append $keys (dict "name" "prometheus" "role" "read" "token_file" "/etc/tollgate/secrets/read/token") }}
{{- end }}
{{- $_ := set $config "keys" $keys }}
{{- if eq .Values.store.kind "none" }}
{{- $_ := set $config "store" "memory" }}
{{- else }}
{{- $store := dict .Values.store.kind (required "store.address is required: the address of the shared store" .Values.store.address) }}
{{- if .Values.store.passwordSecret.name }}
{{- $_ := set $store "password_file" "/etc/tollgate/secrets/store/password" }}
{{- end }}
{{- $_ := set $config "store" $store }}
{{- end }}
{{- with $config.relay }}
{{- $queue := .queue | default dict }}
{{- if not (hasPrefix "/var/lib/tollgate/" ($queue.dir | default "/var/lib/tollgate/queue")) }}
{{- fail "config.relay.queue.dir must be below /var/lib/tollgate, which is on the claim" }}
{{- end }}
{{- $_ := set . "queue" (merge $queue (dict "dir" "/var/lib/tollgate/queue")) }}
{{- end }}
{{- toYaml $config }}
{{- end }}
