"""Seldon's kinds: SeldonDeployment of Core 1; Server and Model of Core 2."""

from webhook.kube.workloads.kind_row import Found, Scene
from webhook.kube.workloads.model import Json, mapping, text
from webhook.kube.workloads.paths import Count, Pods, count_at, dig, entries
from webhook.kube.workloads.template_merge import laid_over


def seldon_deployment(document: Json, _scene: Scene) -> Found:
    """Read a SeldonDeployment: the component specs of each predictor."""
    top = count_at(document, "spec.replicas", default=1)
    pods: list[Pods] = []
    for name, where, predictor in entries(document, "spec.predictors"):
        replicas = count_at(predictor, "replicas", default=top.number, named=f"{where}replicas")
        specs = list(entries(mapping(predictor), "componentSpecs"))
        if not specs:
            problem = f"{where}componentSpecs is not set: a prepackaged server's pod is configured elsewhere"
            pods.append(Pods(name, Count(None, problem), {}))
        for index, (_, below, part) in enumerate(specs):
            role = name if len(specs) == 1 else f"{name}-{index}"
            pods.append(Pods(role, _scaled(mapping(part), replicas, f"{where}{below}"), mapping(part)))
    return Found(tuple(pods))


def _scaled(part: Json, replicas: Count, where: str) -> Count:
    count = count_at(part, "replicas", default=replicas.number, named=f"{where}replicas")
    for path in ("hpaSpec.maxReplicas", "kedaSpec.maxReplicaCount"):
        if dig(part, path) is not None:
            count = count.at_least(count_at(part, path, default=None, named=f"{where}{path}"))
    return count


def server(document: Json, scene: Scene) -> Found:
    """Read a Server: the pod spec of its ServerConfig with its own laid over it."""
    replicas = count_at(document, "spec.replicas", default=1)
    most = count_at(document, "spec.maxReplicas", default=replicas.number)
    name = text(dig(document, "spec.serverConfig"))
    config = scene.related.find("ServerConfig", name, namespace=scene.namespace)
    if config is None:
        problem = f"its ServerConfig {name or 'without a name'} is not among what was read: give it, too"
        return Found((Pods("", Count(None, problem), {}),))
    spec = laid_over(mapping(dig(config, "spec.podSpec")), mapping(dig(document, "spec.podSpec")))
    return Found((Pods("", replicas.at_least(most), {"spec": spec}),))


def model(_document: Json, _scene: Scene) -> Found:
    """Read a Model, which makes no pods."""
    return Found((), ("makes no pods: a Server loads it",))
