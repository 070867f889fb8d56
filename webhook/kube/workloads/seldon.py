"""Seldon's kinds: SeldonDeployment of Core 1; Server and Model of Core 2."""

from webhook.kube.workloads.kind_row import PodsFound, ReadContext
from webhook.kube.workloads.model import Json, mapping, text
from webhook.kube.workloads.paths import Count, Pods, count_at, dig, entries, unknown_pods
from webhook.kube.workloads.template_merge import merge_spec


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
