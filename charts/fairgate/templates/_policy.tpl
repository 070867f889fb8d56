{{/* The policy files as a JSON mapping of name to text. */}}
{{- define "fairgate.policyFiles" -}}
{{- $policy := .Values.policy -}}
{{- $files := dict -}}
{{- if not $policy -}}
{{- $files = dict "policy.yaml" (.Files.Get "files/default-policy.yaml") -}}
{{- else if kindIs "string" $policy -}}
{{- $files = dict "policy.yaml" $policy -}}
{{- else if hasKey $policy "kind" -}}
{{- $files = dict "policy.yaml" (toYaml $policy) -}}
{{- else -}}
{{- range $name, $content := $policy -}}
{{- $_ := set $files $name (kindIs "string" $content | ternary $content (toYaml $content)) -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Every document of the policy, as a JSON list; of a ConfigMap that is not ours nothing is known here. */}}
{{- define "fairgate.policyDocuments" -}}
{{- $documents := list -}}
{{- if not .Values.existingPolicyConfigMap -}}
{{- range $name, $text := include "fairgate.policyFiles" . | fromJson -}}
{{- range regexSplit "(?m)^---.*$" $text -1 -}}
{{- $document := fromYaml . -}}
{{- if hasKey $document "Error" -}}
{{- fail (printf "policy file %s: %s" $name (get $document "Error")) -}}
{{- end -}}
{{- if $document -}}
{{- $documents = append $documents $document -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $documents -}}
{{- end -}}
