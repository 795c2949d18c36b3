{{- define "gpuclass-catalog.namespace" -}}
{{ .Values.namespace | default .Release.Namespace }}
{{- end }}

{{- define "gpuclass-catalog.labels" -}}
app.kubernetes.io/name: gpuclass-catalog
app.kubernetes.io/part-of: gpuclass-catalog
{{- end }}

{{- define "gpuclass-catalog.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}
