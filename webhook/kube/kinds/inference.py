"""Model servers whose pods are patched, scaled in groups, or described by other objects; of others see path_kinds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.gpu_requests import merge_container, merge_spec
from webhook.kube.kinds.kind_row import (
    REPLICA_SET,
    STATEFUL_SET,
    PodsFound,
    ReadContext,
    Row,
    leader_worker_paths,
)
from webhook.kube.kinds.model import (
    ONE,
    Budget,
    Count,
    Json,
    Pods,
    count_at,
    dig,
    entries,
    listed,
    mapping,
    pods_at,
    requested,
    text,
    unknown_pods,
)

_GPU: Final = "nvidia.com/gpu"
_COMPONENT: Final = ("engine", "decoder", "router")
_POD_FIELDS: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName")
_VENDORS: Final = {"amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
"""LLMKube's resources of GPUs that are not NVIDIA's."""


def role_based_group(document: Json, context: ReadContext) -> PodsFound:
    """Read a RoleBasedGroup: each role is pods, or groups of a leader and workers, or of several components."""
    return PodsFound(tuple(_roles(mapping(document.get("spec")), ONE, context.budget)))


def role_based_group_set(document: Json, context: ReadContext) -> PodsFound:
    """Read a RoleBasedGroupSet: that many groups; v1alpha1 has the group's spec as `template`."""
    spec = mapping(dig(document, "spec.groupTemplate.spec")) or mapping(dig(document, "spec.template"))
    return PodsFound(tuple(_roles(spec, count_at(document, "spec.replicas", default=1), context.budget)))


def _roles(spec: Json, times: Count, budget: Budget) -> Iterator[Pods]:
    shared = {name: mapping(mapping(each).get("template")) for name, _, each in entries(spec, "roleTemplates", budget)}
    for name, where, entry in entries(spec, "roles", budget):
        role = mapping(entry)
        count = count_at(role, "replicas", default=1, named=f"spec.{where}replicas").times(times)
        custom = mapping(role.get("customComponentsPattern")) or role
        if listed(custom.get("components")):
            for part, below, each in entries(custom, "components", budget):
                size = count_at(each, "size", default=1, named=f"spec.{where}{below}size")
                yield Pods(f"{name}-{part}", count.times(size), mapping(mapping(each).get("template")))
            continue
        group = mapping(role.get("leaderWorkerPattern") or role.get("leaderWorkerSet"))
        pattern = mapping(role.get("leaderWorkerPattern") or role.get("standalonePattern")) or role
        template = _of_role(pattern, shared, budget)
        size = count_at(group, "size", default=1, named=f"spec.{where}size")
        leader = mapping(group.get("leaderTemplatePatch") or group.get("patchLeaderTemplate"))
        yield Pods(name, count, _patched(template, leader, budget))
        if size.number != 1:
            worker = mapping(group.get("workerTemplatePatch") or group.get("patchWorkerTemplate"))
            yield Pods(f"{name}-worker", count.times(size.without(1)), _patched(template, worker, budget))


def _of_role(pattern: Json, shared: dict[str, Json], budget: Budget) -> Json:
    """Return the template of a role: its own, or one that it names, with what it changes of that."""
    if isinstance(pattern.get("template"), dict):
        return mapping(pattern["template"])
    reference = mapping(pattern.get("templateRef"))
    template = shared.get(text(reference.get("name")), {})
    return _patched(template, mapping(reference.get("patch") or pattern.get("templatePatch")), budget)


def _patched(template: Json, patch: Json, budget: Budget) -> Json:
    if not (template and patch):
        return template
    parts = ("metadata", "spec")
    return {key: merge_spec(mapping(template.get(key)), mapping(patch.get(key)), budget) for key in parts}


def pod_clique_set(document: Json, context: ReadContext) -> PodsFound:
    """Read a PodCliqueSet of Grove: its cliques, those of a scaling group as often as that; autoscaled ones at peak."""
    times = count_at(document, "spec.replicas", default=1)
    groups: dict[str, Count] = {}
    for _, where, group in entries(document, "spec.template.podCliqueScalingGroups", context.budget):
        members = listed(mapping(group).get("cliqueNames"))
        context.budget.step(len(members))
        scaled = _at_peak(mapping(group), where, "scaleConfig")
        groups.update({text(name): scaled for name in members})
    pods = tuple(
        Pods(
            name,
            times.times(_at_peak(mapping(dig(clique, "spec")), f"{where}spec.", "autoScalingConfig")).times(
                groups.get(name, ONE)
            ),
            _of_clique(mapping(clique)),
        )
        for name, where, clique in entries(document, "spec.template.cliques", context.budget)
    )
    return PodsFound(pods)


def _at_peak(of: Json, where: str, scaler: str) -> Count:
    count = count_at(of, "replicas", default=1, named=f"{where}replicas")
    if dig(of, f"{scaler}.maxReplicas") is None:
        return count
    named = f"{where}{scaler}.maxReplicas"
    return count.at_least(count_at(of, f"{scaler}.maxReplicas", default=None, named=named))


def _of_clique(clique: Json) -> Json:
    metadata = {key: clique[key] for key in ("labels", "annotations") if isinstance(clique.get(key), dict)}
    return {"metadata": metadata, "spec": mapping(dig(clique, "spec.podSpec"))}


def llmaz_service(document: Json, context: ReadContext) -> PodsFound:
    """Read a Service of llmaz: a LeaderWorkerSet, whose runners get the limits of their model's flavor."""
    models = listed(dig(document, "spec.modelClaims.models"))
    flavors = listed(dig(document, "spec.modelClaims.inferenceFlavors"))
    limits = _flavor(text(mapping(models[0] if models else None).get("name")), flavors, context)
    if isinstance(limits, str):
        return PodsFound((unknown_pods(limits),))
    budget, rules = context.budget, leader_worker_paths("spec", inner="workloadTemplate")
    found = (each for rule in rules for each in pods_at(document, rule, budget))
    return PodsFound(tuple(replace(each, template=_with_limits(each.template, limits, budget)) for each in found))


def playground(document: Json, context: ReadContext) -> PodsFound:
    """Read a Playground of llmaz: a runner of its backend with the limits of its model's flavor."""
    claims = mapping(dig(document, "spec.modelClaims"))
    named = text(dig(document, "spec.modelClaim.modelName"))
    models = listed(claims.get("models"))
    flavors = listed(dig(document, "spec.modelClaim.inferenceFlavors") or claims.get("inferenceFlavors"))
    limits = _flavor(named or text(mapping(models[0] if models else None).get("name")), flavors, context)
    if isinstance(limits, str):
        return PodsFound((unknown_pods(limits),))
    count = count_at(document, "spec.replicas", default=1)
    if dig(document, "spec.elasticConfig.maxReplicas") is not None:
        count = count.at_least(count_at(document, "spec.elasticConfig.maxReplicas", default=None))
    own = requested(mapping(dig(document, "spec.backendRuntimeConfig.resources")), _GPU, context.budget)
    runner = {"spec": {"containers": [{"name": _RUNNER, "resources": own}]}}
    return PodsFound((Pods("", count, _with_limits(runner, limits, context.budget)),))


_RUNNER: Final = "model-runner"


def _flavor(model: str, flavors: list[object], context: ReadContext) -> Json | str:
    """Return the limits of the flavor that a model runs with, or a message why they are unknown."""
    found = context.find("OpenModel", model, is_namespaced=False)
    if found is None:
        return f"its OpenModel {model or 'without a name'} was not provided: add it to the input"
    known = list(entries(found, "spec.inferenceConfig.flavors", context.budget))
    wanted = text(flavors[0]) if flavors else next((name for name, _, _ in known), "")
    return mapping(next((mapping(each).get("limits") for name, _, each in known if name == wanted), None))


def _with_limits(template: Json, limits: Json, budget: Budget) -> Json:
    """Return a template whose runner also requests what a flavor has."""
    if not (template and limits):
        return template
    runner = {"name": _RUNNER, "resources": {"limits": limits, "requests": limits}}
    return {**template, "spec": merge_spec(mapping(template.get("spec")), {"containers": [runner]}, budget)}


def nim_pipeline(document: Json, context: ReadContext) -> PodsFound:
    """Read a NIMPipeline: a NIMService for each of its services that is enabled."""
    parts = tuple(
        {
            "apiVersion": document.get("apiVersion"),
            "kind": "NIMService",
            "metadata": {"name": name},
            "spec": mapping(mapping(each).get("spec")),
        }
        for name, _, each in entries(document, "spec.services", context.budget)
        if mapping(each).get("enabled") is True
    )
    return PodsFound((), () if parts else ("none of its services is enabled",), parts=parts)


def llmkube_service(document: Json, context: ReadContext) -> PodsFound:
    """Read an InferenceService of LLMKube: the GPUs of its Model, or its own where that names none."""
    spec = mapping(document.get("spec"))
    named = text(spec.get("modelRef"))
    model = context.find("Model", named)
    if model is None:
        problem = f"its Model {named or 'without a name'} was not provided: add it to the input"
        return PodsFound((unknown_pods(problem),))
    gpu = mapping(dig(model, "spec.hardware.gpu"))
    resource = text(gpu.get("resourceName")) or _VENDORS.get(text(gpu.get("vendor")).lower(), _GPU)
    number = gpu.get("count") or dig(spec, "resources.gpu") or 0
    count = count_at(spec, "replicas", default=1, named="spec.replicas")
    if dig(spec, "autoscaling.maxReplicas") is not None:
        named = "spec.autoscaling.maxReplicas"
        count = count.at_least(count_at(spec, "autoscaling.maxReplicas", default=None, named=named))
    if spec.get("suspend") is True:
        count = Count(0)
    pod = {key: spec[key] for key in (*_POD_FIELDS, "priorityClassName") if spec.get(key)}
    if claims := listed(gpu.get("resourceClaims")):
        pod["resourceClaims"], number = claims, 0
    resources = requested({**mapping(spec.get("resources")), "gpu": number, "gpuType": resource}, _GPU, context.budget)
    return PodsFound((Pods("", count, {"spec": {**pod, "containers": [{"name": "main", "resources": resources}]}}),))


def ome_service(document: Json, context: ReadContext) -> PodsFound:
    """Read an InferenceService of OME: its components, each merged over that of its runtime."""
    name = text(dig(document, "spec.runtime.name"))
    runtime = context.find("ServingRuntime", name) or context.find("ClusterServingRuntime", name, is_namespaced=False)
    if runtime is None:
        problem = (
            f"its runtime {name} was not provided: add it to the input" if name else "its runtime is selected by OME"
        )
        return PodsFound((unknown_pods(problem),))
    pods: list[Pods] = []
    for role in _COMPONENT:
        base, own = mapping(dig(runtime, f"spec.{role}Config")), dig(document, f"spec.{role}")
        if isinstance(own, dict):
            pods += _ome_component(role, base, own, context.budget)
    return PodsFound(tuple(pods) or (unknown_pods("it has no engine: its pod is configured elsewhere"),))


def _ome_component(role: str, base: Json, own: Json, budget: Budget) -> Iterator[Pods]:
    where = f"spec.{role}."
    count = count_at(own, "minReplicas", default=1, named=f"{where}minReplicas")
    if own.get("maxReplicas") is not None:
        count = count.at_least(count_at(own, "maxReplicas", default=None, named=f"{where}maxReplicas"))
    groups = [(key, mapping(base.get(key)), mapping(own.get(key))) for key in ("leader", "worker")]
    if not any(group or given for _, group, given in groups):
        yield Pods(role, count, _ome_pod(base, own, budget))
        return
    for key, group, given in groups:
        size = ONE
        if key == "worker":
            size = count_at({**group, **given}, "size", default=1, named=f"{where}worker.size")
        yield Pods(f"{role}-{key}", count.times(size), _ome_pod(group, given, budget), STATEFUL_SET)


def _ome_pod(base: Json, own: Json, budget: Budget) -> Json:
    """Return the pod of a component: its fields, and as its containers the runner and those beside it."""
    merged = dict(merge_spec(base, {key: value for key, value in own.items() if key != "runner"}, budget))
    runner = merge_container(mapping(base.get("runner")), mapping(own.get("runner")), budget)
    spec = {key: merged[key] for key in (*_POD_FIELDS, "resourceClaims", "initContainers") if merged.get(key)}
    containers = [runner, *listed(merged.get("containers"))]
    metadata = {key: merged[key] for key in ("labels", "annotations") if isinstance(merged.get(key), dict)}
    return {"metadata": metadata, "spec": {**spec, "containers": containers}}


_GROUP_LABELS: Final = {"rbg.workloads.x-k8s.io/group-name": "{name}"}

ROWS: Final = (
    Row(
        WorkloadKind("workloads.x-k8s.io", "RoleBasedGroup", "rolebasedgroups"),
        ("v1alpha1", "v1alpha2"),
        "each of `spec.roles`: `replicas` (1), times the `size` of its group or component (1)",
        role_based_group,
        STATEFUL_SET,
        _GROUP_LABELS,
    ),
    Row(
        WorkloadKind("workloads.x-k8s.io", "RoleBasedGroupSet", "rolebasedgroupsets"),
        ("v1alpha1", "v1alpha2"),
        "`spec.replicas` (1) groups, each as a RoleBasedGroup",
        role_based_group_set,
        STATEFUL_SET,
    ),
    Row(
        WorkloadKind("grove.io", "PodCliqueSet", "podcliquesets"),
        ("v1alpha1",),
        "each of `spec.template.cliques`: `replicas` (1) or its autoscaler's maximum, times that of its scaling group, "
        "times `spec.replicas` (1)",
        pod_clique_set,
        labels={"app.kubernetes.io/part-of": "{name}"},
    ),
    Row(
        WorkloadKind("inference.llmaz.io", "Service", "services"),
        ("v1alpha1",),
        "`spec.replicas` (1), as a LeaderWorkerSet; its OpenModel must be given too",
        llmaz_service,
        STATEFUL_SET,
    ),
    Row(
        WorkloadKind("inference.llmaz.io", "Playground", "playgrounds"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.elasticConfig.maxReplicas`; its OpenModel must be given too",
        playground,
        STATEFUL_SET,
    ),
    Row(
        WorkloadKind("apps.nvidia.com", "NIMPipeline", "nimpipelines"),
        ("v1alpha1",),
        "those of each of `spec.services` that is enabled, as a NIMService",
        nim_pipeline,
        makes_objects=True,
    ),
    Row(
        WorkloadKind("inference.llmkube.dev", "InferenceService", "inferenceservices"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.autoscaling.maxReplicas`, with the GPUs of its Model, which must be given too",
        llmkube_service,
        REPLICA_SET,
    ),
    Row(
        WorkloadKind("ome.io", "InferenceService", "inferenceservices"),
        ("v1beta1",),
        "engine, decoder and router: `minReplicas` (1) or `maxReplicas`, times a leader and `worker.size` (1) workers; "
        "its runtime must be given too",
        ome_service,
        REPLICA_SET,
        {"ome.io/inferenceservice": "{name}", "component": "{role}"},
    ),
)
