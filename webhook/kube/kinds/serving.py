"""Model servers: Knative Services, KServe's InferenceService and LLMInferenceService, NVIDIA's NIMService."""

from typing import Final, NamedTuple

from webhook.core.model.gpu_shares import looks_like_gpu
from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.gpu_requests import merge_container, merge_spec
from webhook.kube.kinds.kind_row import KNATIVE, REPLICA_SET, REVISION, STATEFUL_SET, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Count, Json, Pods, count_at, dig, digits, listed, mapping, text, unknown_pods

_MAX_SCALE: Final = ("autoscaling.knative.dev/max-scale", "autoscaling.knative.dev/maxScale")
_MODE: Final = "serving.kserve.io/deploymentMode"
_FIXED_MODES: Final = frozenset({"RawDeployment", "Standard"})
_COMPONENTS: Final = ("predictor", "transformer", "explainer")
_NIM_GPU: Final = "nvidia.com/gpu"
_CLAIM_NAMES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_SERVING: Final = "kserve-container"
_WORKER: Final = "worker-container"
_BACKEND: Final = "multinode/executor-backend"


def knative_service(document: Json, _context: ReadContext) -> PodsFound:
    """Read a Knative Service: as many pods as its annotation allows."""
    template = mapping(dig(document, "spec.template"))
    return PodsFound((Pods("", _max_scale(mapping(dig(template, "metadata.annotations"))), template),))


def revision(document: Json, _context: ReadContext) -> PodsFound:
    """Read a Knative Revision, which is the template of its Service."""
    count = _max_scale(mapping(dig(document, "metadata.annotations")))
    return PodsFound((Pods("", count, mapping(document.get("spec"))),))


def _max_scale(annotations: Json) -> Count:
    given = next((annotations[key] for key in _MAX_SCALE if key in annotations), None)
    number = digits(given)
    if given is None or number == 0:
        return Count(None, f"annotation {_MAX_SCALE[0]} is not set: Knative may create any number")
    return count_at(
        {"given": given if number is None else number}, "given", default=None, named=f"annotation {_MAX_SCALE[0]}"
    )


def inference_service(document: Json, context: ReadContext) -> PodsFound:
    """Read an InferenceService, component by component."""
    pods: list[Pods] = []
    for role in _COMPONENTS:
        component = dig(document, f"spec.{role}")
        if isinstance(component, dict):
            count = _component_count(document, component, f"spec.{role}.")
            pods += _component(role, component, count, context)
    return PodsFound(tuple(pods))


def _component_count(document: Json, component: Json, where: str) -> Count:
    if component.get("maxReplicas"):
        maximum = count_at(component, "maxReplicas", default=None, named=f"{where}maxReplicas")
        return maximum.at_least(count_at(component, "minReplicas", default=1, named=f"{where}minReplicas"))
    if text(mapping(dig(document, "metadata.annotations")).get(_MODE)) in _FIXED_MODES:
        return count_at(component, "minReplicas", default=1, named=f"{where}minReplicas")
    return Count(None, f"{where}maxReplicas is not set: KServe may create any number unless the mode is Standard")


def _component(role: str, component: Json, count: Count, context: ReadContext) -> list[Pods]:
    template = _component_template(component, context)
    if isinstance(template, str):
        return [unknown_pods(template, role=role)]
    own = component.get("workerSpec")
    if not isinstance(own, dict):
        return [Pods(role, count, template)]
    runtime = mapping(_runtime(component, context))
    worker = merge_spec(mapping(dig(runtime, "spec.workerSpec")), own, context.budget)
    stages = count_at(worker, "pipelineParallelSize", default=1, named="workerSpec.pipelineParallelSize")
    width = count_at(worker, "tensorParallelSize", default=1, named="workerSpec.tensorParallelSize")
    spec = mapping(template.get("spec"))
    if stages.number is None or width.number is None or "tensorParallelSize" not in worker:
        return [Pods(role, count, template), Pods(f"{role}-worker", count.times(stages.without(1)), worker)]
    backend = mapping(dig(runtime, "spec.annotations")).get(_BACKEND)
    nodes = _nodes(_gpus(spec), _gpus(worker), stages.number, width.number, is_ray=backend != "mp")
    head = {**template, "spec": _with_gpus(spec, _SERVING, nodes.of_head)}
    workers = Pods(f"{role}-worker", count.times(Count(nodes.others)), _with_gpus(worker, _WORKER, nodes.of_worker))
    return [Pods(role, count, head), workers]


class _Nodes(NamedTuple):
    """The pods of one replica of a model over several nodes: GPUs of the head and of each of the others."""

    of_head: int
    others: int
    of_worker: int


def _nodes(head: int, worker: int, stages: int, width: int, *, is_ray: bool) -> _Nodes:
    """Return how KServe divides a model: its GPUs are `stages` times `width`; of Ray as the containers' requests say.

    See computeRayNodeAndGPUs of its predictor.
    """
    total = stages * width
    if not is_ray:
        return _Nodes(width, max(stages - 1, 0), width)
    if worker:
        number = -(-total // worker)
        if number <= 1 or head >= total:
            return _Nodes(total, 0, 0)
        return _Nodes(head or total - worker * (number - 1), number - 1, worker)
    return _Nodes(head, max(total - head, 0), 1) if head else _Nodes(1, max(total - 1, 0), 1)


def _gpus(spec: Json) -> int:
    """Return the GPUs of a pod's first container."""
    resources = mapping(next(iter(listed(spec.get("containers"))), {})).get("resources")
    amounts = {**mapping(dig(resources, "limits")), **mapping(dig(resources, "requests"))}
    return next((digits(amount) or 0 for name, amount in amounts.items() if looks_like_gpu(str(name))), 0)


def _with_gpus(spec: Json, container: str, number: int) -> Json:
    """Return a pod's spec with so many GPUs in a container, of the kind that it requests already."""
    made = []
    for each in map(mapping, listed(spec.get("containers"))):
        resources = mapping(each.get("resources"))
        sides = {side: dict(mapping(resources.get(side))) for side in ("limits", "requests")}
        named = next((name for side in sides.values() for name in side if looks_like_gpu(str(name))), _NIM_GPU)
        for side in sides.values() if each.get("name") == container else ():
            side[named] = number
        made.append({**each, "resources": {**resources, **sides}})
    return {**spec, "containers": made}


def _component_template(component: Json, context: ReadContext) -> Json | str:
    """Return a component's pod template, or a message why it is unknown: models run in containers of a runtime."""
    spec = {key: value for key, value in component.items() if key not in {"model", "workerSpec"}}
    model = component.get("model")
    if not isinstance(model, dict):
        if isinstance(component.get("containers"), list):
            return _with_annotations(component, spec)
        named = next((key for key in component if "storageUri" in mapping(component[key])), None)
        return f"it names no container; {named or 'its model server'} is configured elsewhere"
    runtime = text(model.get("runtime"))
    if not runtime:
        return "its model names no runtime: KServe selects one by the model's format"
    found = _runtime(component, context)
    if found is None:
        return f"its runtime {runtime} was not provided: add it to the input"
    budget = context.budget
    served = {"containers": [merge_container({"name": _SERVING}, {**model, "name": _SERVING}, budget)]}
    base = merge_spec(mapping(found.get("spec")), served, budget)
    return _with_annotations(component, merge_spec(base, spec, budget))


def _runtime(component: Json, context: ReadContext) -> Json | None:
    name = text(mapping(component.get("model")).get("runtime"))
    return context.find("ServingRuntime", name) or context.find("ClusterServingRuntime", name, is_namespaced=False)


def _with_annotations(component: Json, spec: Json) -> Json:
    metadata = {key: component[key] for key in ("labels", "annotations") if key in component}
    return {"metadata": metadata, "spec": spec}


def nim_service(document: Json, context: ReadContext) -> PodsFound:
    """Read a NIMService: its servers, or for a multi-node model a leader and workers for each."""
    spec = mapping(document.get("spec"))
    if not _asks_for_gpus(spec):
        problem = "spec.resources names no nvidia.com/gpu: the operator requests the number in the model's profile"
        return PodsFound((unknown_pods(problem),))
    count = count_at(spec, "replicas", default=1, named="spec.replicas")
    if dig(spec, "scale.enabled") is True:
        count = count_at(spec, "scale.hpa.maxReplicas", default=None, named="spec.scale.hpa.maxReplicas")
    template = _nim_template(spec, context.name)
    if isinstance(template, str):
        return PodsFound((unknown_pods(template),))
    size = count_at(spec, "multiNode.parallelism.pipeline", default=1, named="spec.multiNode.parallelism.pipeline")
    others = size.without(1)
    if others.number == 0:
        return PodsFound((Pods("", count, template),))
    leader = Pods("leader", count, template, STATEFUL_SET)
    return PodsFound((leader, Pods("worker", count.times(others), template, STATEFUL_SET)))


def _asks_for_gpus(spec: Json) -> bool:
    sides = (mapping(dig(spec, f"resources.{side}")) for side in ("limits", "requests"))
    return bool(spec.get("draResources")) or any(_NIM_GPU in side for side in sides)


def _nim_template(spec: Json, name: str) -> Json | str:
    """Return the pod template, or a message why it is unknown: the operator may create claims itself."""
    claims = []
    for number, each in enumerate(listed(spec.get("draResources"))):
        named = {key: mapping(each)[key] for key in _CLAIM_NAMES if mapping(each).get(key)}
        if not named:
            return f"spec.draResources[{number}] names no claim: the operator creates one"
        claims.append({"name": f"claim-{number}", **named})
    pod = {key: spec[key] for key in ("nodeSelector", "tolerations", "schedulerName") if spec.get(key)}
    if spec.get("podAffinity"):
        pod["affinity"] = {"podAffinity": spec["podAffinity"]}
    if claims:
        pod["resourceClaims"] = claims
    container = {"name": f"{name}-ctr", "resources": mapping(spec.get("resources"))}
    metadata = {key: mapping(spec.get(key)) for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": {**pod, "containers": [container]}}


def llm_inference_service(document: Json, _context: ReadContext) -> PodsFound:
    """Read an LLMInferenceService: its decoders, and its prefill pods if they are separate."""
    pods = _llm("", mapping(document.get("spec")), "spec.")
    prefill = dig(document, "spec.prefill")
    if isinstance(prefill, dict):
        pods += _llm("prefill", prefill, "spec.prefill.")
    return PodsFound(pods, ("the router's pods are not counted: they request no GPU",))


def _llm(role: str, spec: Json, where: str) -> tuple[Pods, ...]:
    replicas = count_at(spec, "replicas", default=1, named=f"{where}replicas")
    template = _llm_template(spec, "template")
    if not isinstance(spec.get("worker"), dict):
        return (Pods(role, replicas, template),)
    others = _llm_size(spec, where).without(1)
    worker = Pods(f"{role}-worker".lstrip("-"), replicas.times(others), _llm_template(spec, "worker"), STATEFUL_SET)
    return (Pods(role, replicas, template, STATEFUL_SET), worker)  # several nodes: by a LeaderWorkerSet


def _llm_template(spec: Json, field: str) -> Json:
    return _with_annotations(spec, mapping(spec.get(field)))


def _llm_size(spec: Json, where: str) -> Count:
    """Return the pods of one replica as KServe does: data / dataLocal, else the stages of the pipeline."""
    parallelism = mapping(spec.get("parallelism"))
    data, local, pipeline = (
        count_at(parallelism, key, default=0, named=f"{where}parallelism.{key}")
        for key in ("data", "dataLocal", "pipeline")
    )
    unknown = next((each for each in (data, local, pipeline) if each.number is None), None)
    if unknown is not None:
        return unknown
    if data.number or local.number:
        return Count(max(max(data.number or 0, 1) // max(local.number or 0, 1), 1))
    return pipeline.at_least(Count(1))


_KNATIVE: Final = "serving.knative.dev"
_BY_SCALE: Final = "annotation `autoscaling.knative.dev/max-scale` of the template"

ROWS: Final = (
    Row(
        WorkloadKind(_KNATIVE, "Service", "services"),
        ("v1",),
        _BY_SCALE,
        knative_service,
        REPLICA_SET,
        {"serving.knative.dev/service": "{name}"},
        deadline=KNATIVE,
    ),
    Row(
        WorkloadKind(_KNATIVE, "Configuration", "configurations"),
        ("v1",),
        _BY_SCALE,
        knative_service,
        REPLICA_SET,
        deadline=KNATIVE,
        is_judged=False,
        is_intermediate=True,
    ),
    Row(
        WorkloadKind(_KNATIVE, "Revision", "revisions"),
        ("v1",),
        "its annotation `autoscaling.knative.dev/max-scale`",
        revision,
        REPLICA_SET,
        deadline=REVISION,
        is_judged=False,
        is_intermediate=True,
    ),
    Row(
        WorkloadKind("serving.kserve.io", "InferenceService", "inferenceservices"),
        ("v1beta1",),
        "each component: `maxReplicas`, or in mode Standard `minReplicas` (1); a model's runtime must be given too",
        inference_service,
        REPLICA_SET,
        {"serving.kserve.io/inferenceservice": "{name}", "component": "{role}"},
        deadline=REVISION,
    ),
    Row(
        WorkloadKind("serving.kserve.io", "LLMInferenceService", "llminferenceservices"),
        ("v1alpha1", "v1alpha2"),
        "`spec.replicas` (1) and `spec.prefill.replicas` (1); with `worker` times the pods that `parallelism` makes",
        llm_inference_service,
        REPLICA_SET,
    ),
    Row(
        WorkloadKind("apps.nvidia.com", "NIMService", "nimservices"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.scale.hpa.maxReplicas` where `scale` is enabled; times "
        "`spec.multiNode.parallelism.pipeline`",
        nim_service,
        REPLICA_SET,
        {"app": "{name}"},
    ),
)
