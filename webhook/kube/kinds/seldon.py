"""Seldon's kinds: SeldonDeployment of Core 1; Server and Model of Core 2."""

from typing import Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.kind_row import REPLICA_SET, STATEFUL_SET, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, mapping, text
from webhook.kube.kinds.paths import Count, Pods, count_at, dig, entries, unknown_pods
from webhook.kube.kinds.template_merge import merge_spec


def seldon_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a SeldonDeployment: the component specs of each predictor."""
    top = count_at(document, "spec.replicas", default=1)
    pods: list[Pods] = []
    for name, where, predictor in entries(document, "spec.predictors", context.budget):
        replicas = count_at(predictor, "replicas", default=top.number, named=f"{where}replicas")
        specs = list(entries(mapping(predictor), "componentSpecs", context.budget))
        if not specs:
            problem = f"{where}componentSpecs is not set: a prepackaged server's pod is configured elsewhere"
            pods.append(unknown_pods(problem, role=name))
        for index, (_, below, part) in enumerate(specs):
            role = name if len(specs) == 1 else f"{name}-{index}"
            pods.append(Pods(role, _scaled(mapping(part), replicas, f"{where}{below}"), mapping(part)))
    return PodsFound(tuple(pods))


def _scaled(part: Json, replicas: Count, where: str) -> Count:
    count = count_at(part, "replicas", default=replicas.number, named=f"{where}replicas")
    for path in ("hpaSpec.maxReplicas", "kedaSpec.maxReplicaCount"):
        if dig(part, path) is not None:
            count = count.at_least(count_at(part, path, default=None, named=f"{where}{path}"))
    return count


def server(document: Json, context: ReadContext) -> PodsFound:
    """Read a Server: the pod spec of its ServerConfig, merged with its own."""
    replicas = count_at(document, "spec.replicas", default=1)
    maximum = count_at(document, "spec.maxReplicas", default=replicas.number)
    name = text(dig(document, "spec.serverConfig"))
    config = context.find("ServerConfig", name)
    if config is None:
        problem = f"its ServerConfig {name or 'without a name'} was not provided: add it to the input"
        return PodsFound((unknown_pods(problem),))
    spec = merge_spec(mapping(dig(config, "spec.podSpec")), mapping(dig(document, "spec.podSpec")), context.budget)
    return PodsFound((Pods("", replicas.at_least(maximum), {"spec": spec}),))


def model(_document: Json, _context: ReadContext) -> PodsFound:
    """Read a Model, which creates no pods."""
    return PodsFound((), ("creates no pods: a Server loads it",))


ROWS: Final = (
    Row(
        WorkloadKind("machinelearning.seldon.io", "SeldonDeployment", "seldondeployments"),
        ("v1",),
        "each of `componentSpecs`: `replicas` of its own, the predictor or the whole (1), or its autoscaler's maximum",
        seldon_deployment,
        REPLICA_SET,
        {"seldon-deployment-id": "{name}"},
    ),
    Row(
        WorkloadKind("mlops.seldon.io", "Server", "servers"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.maxReplicas`; its ServerConfig must be given too",
        server,
        STATEFUL_SET,
    ),
    Row(
        WorkloadKind("mlops.seldon.io", "Model", "models"),
        ("v1alpha1",),
        "none: a Server loads it",
        model,
        is_judged=False,
    ),
)
