{{/*
The webhook configurations for the policy, as `fairgate manifests` prints them (a test compares). files/webhooks.json
holds them with marks, generated from the code; here the marks get what the policy says.
No webhook fails closed before a server can answer: one that should is rendered with Ignore, and the leader sets Fail
once it serves. What it has set stays: an upgrade reads it from the cluster.
*/}}
{{- define "fairgate.registration" -}}
{{- $base := .Files.Get "files/webhooks.json" | fromJson -}}
{{- $documents := include "fairgate.policyDocuments" . | fromJsonArray -}}
{{- $concerns := include "fairgate.concerns" (dict "base" $base "documents" $documents) -}}
{{- $steers := printf "%s%s" $concerns (include "fairgate.matches" $documents) -}}
{{- $service := dict "namespace" .Release.Namespace "name" (include "fairgate.fullname" .) "port" (int .Values.service.port) -}}
{{- range $configuration := $base.configurations -}}
{{- $closed := include "fairgate.closedWebhooks" $configuration | fromJsonArray -}}
{{- range $webhook := $configuration.webhooks -}}
{{- range $webhook.matchConditions -}}
{{- $expression := .expression | replace $base.concerns (eq $webhook.name "mutate.fairgate.dev" | ternary $steers $concerns) -}}
{{- $_ := set . "expression" (include "fairgate.filled" (dict "base" $base "documents" $documents "text" $expression)) -}}
{{- end -}}
{{- if has $webhook.name (list "workloads.fairgate.dev" "gangs.fairgate.dev") -}}
{{- $_ := set $webhook "rules" (include "fairgate.workloadRules" (dict "base" $base "documents" $documents "rule" (first $webhook.rules)) | fromJsonArray) -}}
{{- end -}}
{{- $_ := set $webhook "namespaceSelector" (include "fairgate.exempt" (dict "documents" $documents "operators" $base.operatorNamespaces) | fromJson).selector -}}
{{- $_ := set $webhook.clientConfig "service" (set (deepCopy $service) "path" $webhook.clientConfig.service.path) -}}
{{- if ne (include "fairgate.enforce" $) "enforce" -}}
{{- $_ := mergeOverwrite $webhook $base.notEnforced -}}
{{- else if not (has $webhook.name $closed) -}}
{{- $_ := set $webhook "failurePolicy" "Ignore" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $base.configurations -}}
{{- end -}}

{{/* The webhooks of a configuration that fail closed in the cluster now, as a JSON list of names; none without a cluster. */}}
{{- define "fairgate.closedWebhooks" -}}
{{- $closed := list -}}
{{- range (lookup .apiVersion .kind "" .metadata.name).webhooks -}}
{{- if eq (.failurePolicy | default "Fail") "Fail" -}}
{{- $closed = append $closed .name -}}
{{- end -}}
{{- end -}}
{{- toJson $closed -}}
{{- end -}}

{{/* The guards and their bindings for the policy, as `fairgate manifests` prints them (a test compares). */}}
{{- define "fairgate.guards" -}}
{{- $base := .Files.Get "files/webhooks.json" | fromJson -}}
{{- $documents := include "fairgate.policyDocuments" . | fromJsonArray -}}
{{- $exempt := include "fairgate.exempt" (dict "documents" $documents "operators" $base.operatorNamespaces) | fromJson -}}
{{- $access := .Values.guards.deviceAccess | default "warn" -}}
{{- $grace := "600" -}}
{{- $keys := list "fairgate.dev/exempt" "resource.kubernetes.io/admin-access" -}}
{{- $paths := list -}}
{{- range $documents -}}
{{- with .defaults -}}
{{- $access = default $access .deviceAccess -}}
{{- $paths = concat $paths (.hostPaths | default list) -}}
{{- with .maximumGracePeriod -}}
{{- $grace = include "fairgate.seconds" . -}}
{{- end -}}
{{- end -}}
{{- range .teams -}}
{{- with .namespaceSelector -}}
{{- $keys = concat $keys (keys (.matchLabels | default dict)) -}}
{{- range .matchExpressions -}}
{{- $keys = append $keys .key -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $keys = $keys | uniq | sortAlpha -}}
{{- $mode := include "fairgate.enforce" . -}}
{{- $actions := get (dict "enforce" (list "Deny") "warn" (list "Warn" "Audit") "shadow" (list "Audit")) $mode -}}
{{- $trusted := include "fairgate.quoted" (.Values.guards.trustedUsers | uniq | sortAlpha) -}}
{{- $made := list -}}
{{- range $guard := $base.guards -}}
{{- $name := $guard.metadata.name -}}
{{- $isOfDevices := hasPrefix "fairgate-devices" $name -}}
{{- range $guard.spec.validations -}}
{{- $_ := set . "expression" (.expression | replace "request.userInfo.username in [\"@user@\"] || " ($trusted | empty | ternary "" (printf "request.userInfo.username in [%s] || " $trusted))) -}}
{{- end -}}
{{- if eq $guard.kind "ValidatingAdmissionPolicyBinding" -}}
{{- $isWarning := and $isOfDevices (eq $access "warn") (eq $mode "enforce") -}}
{{- $_ := set $guard.spec "validationActions" ($isWarning | ternary (list "Warn" "Audit") $actions) -}}
{{- else if eq $name "fairgate-tenancy" -}}
{{- $changed := list -}}
{{- range $keys -}}
{{- $changed = append $changed (replace "@key@" . $base.tenancyKey) -}}
{{- end -}}
{{- $_ := set (first $guard.spec.matchConditions) "expression" (join " || " $changed) -}}
{{- $validation := first $guard.spec.validations -}}
{{- $_ := set $validation "messageExpression" (replace "fairgate.dev/exempt, resource.kubernetes.io/admin-access set" (printf "%s set" (join ", " $keys)) $validation.messageExpression) -}}
{{- else if has $name (list "fairgate-forged" "fairgate-grace") -}}
{{- range $guard.spec.matchConditions -}}
{{- $expression := eq .name "is-not-exempt" | ternary $exempt.globs (.expression | replace "> 600" (printf "> %s" $grace)) -}}
{{- $_ := set . "expression" (include "fairgate.filled" (dict "base" $base "documents" $documents "text" $expression)) -}}
{{- end -}}
{{- $validation := first $guard.spec.validations -}}
{{- $_ := set $validation "messageExpression" (replace "600 seconds" (printf "%s seconds" $grace) $validation.messageExpression) -}}
{{- $_ := set $guard.spec.matchConstraints "namespaceSelector" $exempt.selector -}}
{{- else if hasKey $guard.spec.matchConstraints "namespaceSelector" -}}
{{- range $guard.spec.matchConditions -}}
{{- $expression := eq .name "is-not-exempt" | ternary $exempt.globs .expression -}}
{{- $_ := set . "expression" (include "fairgate.filled" (dict "base" $base "documents" $documents "text" $expression)) -}}
{{- end -}}
{{- $_ := set $guard.spec.matchConstraints "namespaceSelector" $exempt.selector -}}
{{- end -}}
{{- range $guard.spec.variables -}}
{{- $_ := set . "expression" (.expression | replace "\"@path@\"" (include "fairgate.quoted" ($paths | uniq | sortAlpha))) -}}
{{- end -}}
{{- if not (and $isOfDevices (eq $access "ignore")) -}}
{{- $made = append $made $guard -}}
{{- end -}}
{{- end -}}
{{- toJson $made -}}
{{- end -}}

{{/* A duration of the policy in seconds. */}}
{{- define "fairgate.seconds" -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+[hms]" (toString .) -1 -}}
{{- $unit := get (dict "h" 3600 "m" 60 "s" 1) (substr (int (sub (len .) 1)) (len .) .) -}}
{{- $seconds = addf $seconds (mulf (float64 (trimAll "hms" .)) $unit) -}}
{{- end -}}
{{- int64 $seconds -}}
{{- end -}}

{{/* CEL: the pod concerns us. */}}
{{- define "fairgate.concerns" -}}
{{- include "fairgate.filled" (dict "base" .base "documents" .documents "text" .base.concerns) -}}
{{- end -}}

{{/* A text with the marks replaced by the names of what counts and of what is ignored on purpose. */}}
{{- define "fairgate.filled" -}}
{{- $counted := .base.counted -}}
{{- $ignored := .base.ignored -}}
{{- $unknown := "reject" -}}
{{- range .documents -}}
{{- with .defaults -}}
{{- $unknown = default $unknown .unknownGpu -}}
{{- end -}}
{{- range $name, $resource := .resources -}}
{{- $counted = without $counted $name -}}
{{- $ignored = without $ignored $name -}}
{{- if not (regexMatch "^0+(\\.0*)?(/.*)?$" (hasKey $resource "gpus" | ternary (toString $resource.gpus) "1")) -}}
{{- $counted = append $counted $name -}}
{{- else if and (regexMatch $.base.lookalike $name) (not (regexMatch $.base.otherDevices $name)) -}}
{{- $ignored = append $ignored $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $known := printf "k in [\"@ignored-gpu@\"]" -}}
{{- $pattern := printf "k.matches(%s) && !k.matches(%s)" (toRawJson .base.lookalike) (toRawJson .base.otherDevices) -}}
{{- $text := .text -}}
{{- if eq $unknown "ignore" -}}
{{- $text = replace (printf " || (%s && !(%s))" $pattern $known) "" $text -}}
{{- else if not $ignored -}}
{{- $text = replace (printf " && !(%s)" $known) "" $text -}}
{{- end -}}
{{- $text | replace "\"@counted@\"" (include "fairgate.quoted" (sortAlpha $counted)) | replace "\"@ignored-gpu@\"" (include "fairgate.quoted" (sortAlpha $ignored)) -}}
{{- end -}}

{{/* Texts as CEL strings. */}}
{{- define "fairgate.quoted" -}}
{{- $quoted := list -}}
{{- range . -}}
{{- $quoted = append $quoted (toRawJson .) -}}
{{- end -}}
{{- join ", " $quoted -}}
{{- end -}}

{{/* CEL: or a pool is for the pod's kind, pools in the order of their names. */}}
{{- define "fairgate.matches" -}}
{{- $pools := dict -}}
{{- range . -}}
{{- range .pools -}}
{{- if .match -}}
{{- $_ := set $pools .name .match.podSelector -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range keys $pools | sortAlpha -}}
{{- printf " || (%s)" (include "fairgate.selects" (get $pools .)) -}}
{{- end -}}
{{- end -}}

{{/* CEL: a label selector selects the pod. Requirements come in the order in which the policy's code sorts them. */}}
{{- define "fairgate.selects" -}}
{{- $meet := dict -}}
{{- range $key, $value := .matchLabels -}}
{{- $_ := set $meet (printf "'%s' IN %s" $key $value) (include "fairgate.meets" (dict "key" $key "operator" "In" "values" (list $value))) -}}
{{- end -}}
{{- range .matchExpressions -}}
{{- $names := dict "In" "IN" "NotIn" "NOT_IN" "Exists" "EXISTS" "DoesNotExist" "DOES_NOT_EXIST" -}}
{{- $_ := set $meet (printf "'%s' %s %s" .key (get $names .operator) (.values | default list | uniq | sortAlpha | join ",")) (include "fairgate.meets" .) -}}
{{- end -}}
{{- $said := list -}}
{{- range keys $meet | sortAlpha -}}
{{- $said = append $said (get $meet .) -}}
{{- end -}}
{{- join " && " $said -}}
{{- end -}}

{{- define "fairgate.meets" -}}
{{- $key := toRawJson .key -}}
{{- $there := printf "has(object.metadata.labels) && %s in object.metadata.labels" $key -}}
{{- $values := include "fairgate.quoted" (.values | default list | uniq | sortAlpha) -}}
{{- if eq .operator "Exists" -}}
({{ $there }})
{{- else if eq .operator "DoesNotExist" -}}
!({{ $there }})
{{- else -}}
{{ eq .operator "NotIn" | ternary "!" "" }}({{ $there }} && object.metadata.labels[{{ $key }}] in [{{ $values }}])
{{- end -}}
{{- end -}}

{{/* Exempt namespaces: `selector` leaves out those with an exact name, `globs` in CEL the others. */}}
{{- define "fairgate.exempt" -}}
{{- $names := list "kube-system" "fairgate-system" -}}
{{- $globs := list -}}
{{- $operators := .operators -}}
{{- $owned := list -}}
{{- range .documents -}}
{{- range .teams -}}
{{- $owned = concat $owned (.namespaces | default list) -}}
{{- end -}}
{{- with .exempt -}}
{{- if eq (toString .operators) "false" -}}
{{- $operators = list -}}
{{- end -}}
{{- range .namespaces -}}
{{- if regexMatch "[*?\\[]" . -}}
{{- $globs = append $globs . -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $operators -}}
{{- if not (has . $owned) -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- $said := list -}}
{{- range $globs | uniq | sortAlpha -}}
{{- $pattern := printf "^%s$" (. | replace "*" ".*" | replace "?" ".") -}}
{{- $said = append $said (printf "!request.namespace.matches(%s)" (toRawJson $pattern)) -}}
{{- end -}}
{{- $expression := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" ($names | uniq | sortAlpha) -}}
{{- dict "selector" (dict "matchExpressions" (list $expression)) "globs" (join " && " $said | default "true") | toJson -}}
{{- end -}}

{{/* One rule for each API group of the kinds that make pods; a kind of the policy takes the place of a built-in one. */}}
{{- define "fairgate.workloadRules" -}}
{{- $kinds := dict -}}
{{- range .base.kinds -}}
{{- $_ := set $kinds (printf "%s/%s" .group .kind) . -}}
{{- end -}}
{{- range .documents -}}
{{- with .workloads -}}
{{- range .kinds -}}
{{- if not (has (printf "%s/%s" .group .kind) $.base.notJudged) -}}
{{- $_ := set $kinds (printf "%s/%s" .group .kind) (dict "group" .group "resource" .resource "versions" (list "*")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $groups := dict -}}
{{- range $kinds -}}
{{- $group := get $groups .group | default (dict "resources" list "versions" list) -}}
{{- $_ := set $group "resources" (append $group.resources .resource) -}}
{{- $_ := set $group "versions" (concat $group.versions .versions) -}}
{{- $_ := set $groups .group $group -}}
{{- end -}}
{{- $rules := list -}}
{{- range $name := keys $groups | sortAlpha -}}
{{- $group := get $groups $name -}}
{{- $rule := deepCopy $.rule -}}
{{- $_ := set $rule "apiGroups" (list $name) -}}
{{- $_ := set $rule "apiVersions" ($group.versions | uniq | sortAlpha) -}}
{{- $_ := set $rule "resources" ($group.resources | sortAlpha) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}
