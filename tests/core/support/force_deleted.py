"""Pods that their owner deletes by force."""

from webhook.core.model.pod import Resident
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World, lingering


def delete_by_force(place: World, *pods: Resident) -> list[InFlightCharge]:
    """The effect of the watch's events for pods that come, and are deleted by force; returns what is left of them."""
    found = []
    for pod in pods:
        place.set_pod(pod)
        left = lingering(pod.uid, place, is_watched=True)
        place.remove_pod(pod.uid)
        if left is not None:
            place.assume(left)
            found.append(left)
    return found
