"""What scales workloads, from which their minimums are read."""

from webhook.cluster.watch.kinds import grouped_kind, path_of
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.world.world import World
from webhook.kube.workloads.scalers import SCALER_API, SCALERS, Autoscaler, scaling_of


def scaler_kind(world: World) -> WatchedKind[Autoscaler]:
    """Watch HorizontalPodAutoscalers: a minimum has its team's share first, so what changes of one may change tiers."""
    minimums = world.minimums

    def apply(found: Autoscaler) -> bool:
        scaling = scaling_of(found)
        if scaling is not None and minimums.set_scaler(path_of(found), *scaling):
            world.on_usage_changed()
        return scaling is not None

    def remove(handle: str) -> None:
        if minimums.remove_scaler(handle):
            world.on_usage_changed()

    return grouped_kind(SCALERS, SCALER_API, Autoscaler, apply=apply, remove=remove, needs_right=False)
