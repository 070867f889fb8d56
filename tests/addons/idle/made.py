"""Rules of idle GPUs, and pods that are judged by them."""

from webhook.addons.idle.judge import Candidate, PodUtilization
from webhook.core.model.amounts import ONE_GPU, Namespace, TeamName, Uid
from webhook.core.model.policy_addons import IdleAction, IdleRules, IdleTerms, UtilizationSource
from webhook.policy.addons import LABELS, METRICS, Exporter

MINUTE = 60
HOUR = 60 * MINUTE
SOURCE = UtilizationSource("http://prometheus:9090", (("job", "dcgm"),), METRICS[Exporter.DCGM], LABELS)


def terms(*actions, below=5, for_=HOUR):
    return IdleTerms(below, for_, frozenset(map(IdleAction, actions or ("report",))))


def rules(*actions, below=5, for_=HOUR, startup=0, **more):
    return IdleRules(SOURCE, terms(*actions, below=below, for_=for_), startup_seconds=startup, **more)


def candidate(name="a", *, workload="", devices=1, of=None, **more):
    return Candidate(
        uid=Uid(more.pop("uid", name)),
        key=(Namespace("team-a"), name),
        team=TeamName("team-a"),
        workload=workload or f"team-a/Pod/{name}",
        gpus=devices * ONE_GPU,
        devices=devices,
        terms=of or terms(),
        **more,
    )


def used(percent=0.0, *, name="a", devices=1, **more):
    """The utilization of a pod, the same of each of its GPUs."""
    values = {(f"{name}-{number}",): percent for number in range(devices)}
    return {(Namespace("team-a"), name): PodUtilization(values, more.pop("of_parts", values), **more)}
