"""NVIDIA Dynamo: the components of an inference graph, each a number of replicas of one or several nodes."""

from typing import Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.kind_row import REPLICA_SET, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, listed, mapping
from webhook.kube.kinds.paths import Count, Pods, count_at, dig, entries, requested
from webhook.kube.kinds.template_merge import merge_container, merge_spec

_MAIN: Final = "main"
_GPU: Final = "nvidia.com/gpu"
"""The resource of `gpu` where `gpuType` does not name another one."""
_TEMPLATE_STEPS: Final = 40
"""Steps of reading a component and making its template."""


def graph_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a DynamoGraphDeployment: `services` by name in v1alpha1, a list of `components` in v1beta1."""
    each = "spec.components" if isinstance(dig(document, "spec.components"), list) else "spec.services"
    found = [(role, where, mapping(component)) for role, where, component in entries(document, each, context.budget)]
    pods = tuple(_pods(role, where, component, context.budget) for role, where, component in found)
    scaled = [role for role, _, component in found if isinstance(component.get("scalingAdapter"), dict)]
    context.budget.write(sum(map(len, scaled)))
    return PodsFound(pods, (f"an autoscaler may change replicas of {', '.join(scaled)}",) if scaled else ())


def component_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a DynamoComponentDeployment: one component."""
    return PodsFound((_pods("", "spec.", mapping(document.get("spec")), context.budget),))


def _pods(role: str, where: str, component: Json, budget: Budget) -> Pods:
    count = count_at(component, "replicas", default=1, named=f"{where}replicas")
    if dig(component, "autoscaling.enabled") is True:
        named = f"{where}autoscaling.maxReplicas"
        count = count.at_least(count_at(component, "autoscaling.maxReplicas", default=None, named=named))
    nodes = Count(1)
    if isinstance(component.get("multinode"), dict):
        nodes = count_at(component, "multinode.nodeCount", default=2, named=f"{where}multinode.nodeCount")
    if isinstance(component.get("podTemplate"), dict):
        return Pods(role, count.times(nodes), mapping(component["podTemplate"]))
    return Pods(role, count.times(nodes), _template(component, budget))


def _template(component: Json, budget: Budget) -> Json:
    """Return the pod template of a v1alpha1 component: its resources in the main container."""
    budget.step(_TEMPLATE_STEPS)
    given = mapping(component.get("extraPodSpec"))
    main = {**mapping(given.get("mainContainer")), "name": _MAIN}
    resources = requested(mapping(component.get("resources")), _GPU, budget)
    main = {**main, **merge_container(main, {"resources": resources}, budget)}
    spec = {key: value for key, value in given.items() if key not in ("mainContainer", "containers")}
    extra = mapping(component.get("extraPodMetadata"))
    metadata = merge_spec(
        {key: mapping(component.get(key)) for key in ("labels", "annotations")},
        {key: mapping(extra.get(key)) for key in ("labels", "annotations")},
        budget,
    )
    return {"metadata": metadata, "spec": {**spec, "containers": [main, *listed(given.get("containers"))]}}


_VERSIONS: Final = ("v1alpha1", "v1beta1")
_LABELS: Final = {"nvidia.com/dynamo-component": "{role}"}

ROWS: Final = (
    Row(
        WorkloadKind("nvidia.com", "DynamoGraphDeployment", "dynamographdeployments"),
        _VERSIONS,
        "each of `spec.services` or `spec.components`: `replicas` (1) times `multinode.nodeCount` (1)",
        graph_deployment,
        REPLICA_SET,
        {**_LABELS, "nvidia.com/dynamo-graph-deployment-name": "{name}"},
    ),
    Row(
        WorkloadKind("nvidia.com", "DynamoComponentDeployment", "dynamocomponentdeployments"),
        _VERSIONS,
        "`spec.replicas` (1) times `spec.multinode.nodeCount` (1)",
        component_deployment,
        REPLICA_SET,
    ),
)
