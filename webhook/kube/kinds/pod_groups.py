"""PodGroups: they make no pods, and say how many of a gang start together."""

from typing import Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.gang_rules import GangRules
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.model import Json, mapping, shown
from webhook.kube.kinds.paths import dig
from webhook.kube.objects import keys


def _least(group: Json) -> int:
    """Return how many pods a group wants together: of Volcano, scheduler-plugins or Kubernetes itself.

    Raises ValueError if it does not say it.
    """
    spec = mapping(group.get("spec"))
    policy = spec.get("schedulingPolicy")
    if policy is not None and dig(policy, "gang") is None:
        return 1  # its pods are scheduled one by one
    least = dig(policy, "gang.minCount") if policy is not None else spec.get("minMember")
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise ValueError(f"it wants {shown(least)} pods together")
    return least


def _row(api: str, marker: str) -> Row:
    group, _, version = api.partition("/")
    return Row(
        WorkloadKind(group, "PodGroup", "podgroups"),
        (version,),
        "none: it says how many pods of a gang start together",
        is_judged=False,
        gang=GangRules(marker=marker, least=_least, counts_all=True),
    )


ROWS: Final = (
    _row(keys.GROUPS_API, keys.SCHEDULING_GROUP),
    _row("scheduling.volcano.sh/v1beta1", keys.VOLCANO_GROUP),
    _row("scheduling.x-k8s.io/v1alpha1", keys.SCHEDULER_PLUGINS_GROUP),
)
