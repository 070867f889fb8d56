"""Match conditions of the webhooks, in CEL: which requests the API server sends to Fairgate."""

import json
from typing import Any, Final, assert_never

from webhook.core.model.gpu_names import OTHER_DEVICES, PATTERN, looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS
from webhook.core.model.policy import LabelSelector, Policy, UnknownGpu
from webhook.core.model.selector import Operator, Requirement
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.objects import keys

ABSENT: Final = "!absent"  # no label may have this value, and no annotation of ours has it

_Json = dict[str, Any]

_ALLOCATED: Final = "has({root}.status) && has({root}.status.allocation)"
GETS_DEVICES: Final[list[_Json]] = [
    {
        "name": "gets-devices",
        "expression": f"{_ALLOCATED.format(root='object')} && !({_ALLOCATED.format(root='oldObject')})",
    }
]


_OWNERS: Final = "object.metadata.ownerReferences"
_MADE_BY_NO_CONTROLLER: Final[_Json] = {
    "name": "is-made-by-no-controller",
    "expression": f"!(has({_OWNERS}) && {_OWNERS}.exists(o, has(o.controller) && o.controller))",
}


def of_workloads(policy: Policy) -> list[_Json]:
    """Return conditions that exclude objects of controllers, which ignore warnings, and built-in kinds without GPUs.

    Jobs that the jobs webhook has judged are excluded, too.
    """
    template = '(request.kind.kind == "CronJob" ? object.spec.jobTemplate.spec.template : object.spec.template)'
    groups = ", ".join(quoted(group) for group in ("", "apps", "batch"))
    requests = gpu_pod_expression(policy, spec=f"{template}.spec")
    # kube-apiserver evaluates every condition: in one expression the costly part is left out for Jobs with the rule
    may_ask = f"!(request.kind.group in [{groups}]) || (!({_DECIDES_EVICTIONS}) && ({requests}))"
    return [_MADE_BY_NO_CONTROLLER, {"name": "may-ask-for-gpus", "expression": may_ask}]


def of_gangs(policy: Policy) -> list[_Json]:
    """Return conditions that select workloads of which pod templates are to have annotations, unless of a controller.

    Those are workloads that are gangs, state their run time or minimum or may be elastic, and Jobs with GPUs and a
    deadline.

    A Deployment's annotations are copied to its ReplicaSets, whose template must stay that of the Deployment. Jobs
    whose templates the jobs webhook has annotated are excluded, too.
    """
    gang = f"{metadata_value('object', 'annotations', keys.GANG)} == {quoted('true')}"
    domain = f"{metadata_value('object', 'annotations', keys.TOPOLOGY)} != {quoted(ABSENT)}"
    states = f"{metadata_value('object', 'annotations', keys.RUN_TIME)} != {quoted(ABSENT)}"
    keeps = f"{metadata_value('object', 'annotations', keys.MINIMUM)} != {quoted(ABSENT)}"
    requests = gpu_pod_expression(policy, spec="object.spec.template.spec")
    marks = f"{gang} || {domain} || {states} || {keeps} || {_IS_ELASTIC} || {_has_deadline(policy)}"
    has_marks = f"({marks}) && !({_DECIDES_EVICTIONS} && ({requests}))"
    return [_MADE_BY_NO_CONTROLLER, {"name": "has-marks-for-pods", "expression": has_marks}]


def _has_deadline(policy: Policy) -> str:
    """Return a CEL expression: it is a Job with GPUs, or a CronJob of such, that has a deadline."""
    job = '(request.kind.kind == "CronJob" ? object.spec.jobTemplate.spec : object.spec)'
    is_job = 'request.kind.group == "batch" && request.kind.kind in ["Job", "CronJob"]'
    return (
        f"({is_job} && has({job}.activeDeadlineSeconds) && ({gpu_pod_expression(policy, spec=f'{job}.template.spec')}))"
    )


def of_jobs(policy: Policy) -> list[_Json]:
    """Return conditions that exclude Jobs without GPUs, without restartPolicy Never, and updates without a change."""
    new, old = "object.spec", "oldObject.spec"
    replaced = f'has({new}.podReplacementPolicy) && {new}.podReplacementPolicy != "Failed"'
    kept = f"has({new}.podFailurePolicy) && {new}.podFailurePolicy == {old}.podFailurePolicy"
    changes = f"has({old}.podFailurePolicy) && (!({kept}) || ({replaced}))"
    return [
        {"name": "may-ask-for-gpus", "expression": gpu_pod_expression(policy, spec="object.spec.template.spec")},
        {"name": "can-have-failure-policy", "expression": f'{new}.template.spec.restartPolicy == "Never"'},
        {"name": "changes-failure-policy", "expression": f'request.operation == "CREATE" || ({changes})'},
        {"name": "is-not-left-alone", "expression": _NOT_LEFT_ALONE},
    ]


def gpu_pod_expression(policy: Policy, *, spec: str = "object.spec") -> str:
    """Return a CEL expression: the pod with this `spec` has claims, or resources that the policy counts or refuses."""
    if not policy.resources:
        return "false"
    requests = " || ".join(
        f"(has(c.resources.{side}) && c.resources.{side}.exists(k, {_concerning(policy)}))"
        for side in ("limits", "requests")
    )
    containers = f"({spec}.containers + (has({spec}.initContainers) ? {spec}.initContainers : []))"
    return f"has({spec}.resourceClaims) || {containers}.exists(c, has(c.resources) && ({requests}))"


def pool_pod_expression(policy: Policy) -> str:
    """Return a CEL expression: the pod may request GPUs, or its labels match a pool."""
    kinds = [f" || ({_matching(pool.match)})" for pool in policy.pools if pool.match is not None]
    return gpu_pod_expression(policy) + "".join(kinds)


def _concerning(policy: Policy) -> str:
    """Return a CEL expression: the policy counts the resource named k, or may refuse it as an unknown GPU."""
    names = ", ".join(quoted(name) for name in sorted(policy.resources))
    counted = f"k in [{names}] || k.startsWith({quoted(DEVICE_CLASS)})"
    if policy.defaults.unknown_gpu is UnknownGpu.IGNORE:
        return counted
    known = ", ".join(quoted(name) for name in sorted(policy.ignored_resources) if looks_like_gpu(name))
    return f"{counted} || ({gpu_name_expression()}" + (f" && !(k in [{known}]))" if known else ")")


def gpu_name_expression() -> str:
    """Return a CEL expression: the resource named k looks like a GPU, as `looks_like_gpu` says."""
    return f"k.matches({quoted(PATTERN)}) && !k.matches({quoted(OTHER_DEVICES)})"


def _matching(selector: LabelSelector) -> str:
    """Return a CEL expression: the selector matches the pod's labels."""
    return " && ".join(map(_matches_requirement, selector.requirements))


def _matches_requirement(requirement: Requirement) -> str:
    labels, key = "object.metadata.labels", quoted(requirement.key)
    is_present = f"has({labels}) && {key} in {labels}"
    values = ", ".join(map(quoted, requirement.values))
    match requirement.operator:
        case Operator.EXISTS:
            return f"({is_present})"
        case Operator.DOES_NOT_EXIST:
            return f"!({is_present})"
        case Operator.IN:
            return f"({is_present} && {labels}[{key}] in [{values}])"
        case Operator.NOT_IN:
            return f"!({is_present} && {labels}[{key}] in [{values}])"
        case Operator.GT | Operator.LT:  # node affinity only: the policy refuses them in a label selector
            return "false"
        case _ as never:
            assert_never(never)


def metadata_value(root: str, at: str, key: str) -> str:
    """Return a CEL expression: the value of a label or annotation (`at`) of an object, which may be null."""
    found = f"{root}.metadata.{at}"
    return f"({root} != null && has({found}) && {quoted(key)} in {found} ? {found}[{quoted(key)}] : {quoted(ABSENT)})"


def quoted(text: str) -> str:
    """Return a CEL string literal; CEL accepts JSON's escapes."""
    return json.dumps(text)


_NOT_LEFT_ALONE: Final = (
    f"{metadata_value('object', 'annotations', keys.JOB_EVICTIONS)} != {quoted(keys.COUNT_EVICTIONS)}"
)
_IS_ELASTIC: Final = (
    'request.kind.group == "ray.io" || (request.kind.kind == "PyTorchJob" && has(object.spec.elasticPolicy))'
    ' || (request.kind.group == "batch.volcano.sh" && request.kind.kind == "Job" && has(object.spec.minAvailable))'
)
_RULES: Final = "object.spec.podFailurePolicy.rules"
_PATTERNS: Final = "r.onPodConditions"
_MATCHES_EVICTIONS: Final = f'c.type == {quoted(DISRUPTION)} && (!has(c.status) || c.status == "True")'
_DECIDES_EVICTIONS: Final = (
    f'request.kind.group == "batch" && request.kind.kind == "Job" && {_NOT_LEFT_ALONE}'
    f" && has(object.spec.podFailurePolicy) && {_RULES} != null"
    f" && {_RULES}.exists(r, has({_PATTERNS}) && {_PATTERNS} != null && {_PATTERNS}.exists(c, {_MATCHES_EVICTIONS}))"
)
"""CEL: the object is a Job that has a rule about evictions, and may have got it from the jobs webhook.

If it asks for GPUs, that webhook was called and answered for the others (`job_reviews.answer_job`). If it failed, or
was called for another state of the Job, there is no rule of Fairgate, and the others are called.
"""
