"""Room that a node keeps for one pod to come: the replacement of a moved pod, or a pod that still waits in line."""

from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import ResourceName, TeamName, Uid

NO_POD: Final = Uid("")


class KeptPlace(NamedTuple):
    """The room of one pod.

    `key` is the UID of a pod in line, or names the controller of the pod that is to come (`controller_key`); it is ""
    for room that is only to become free. `name` is the pod that the room was planned for, with its namespace, `team`
    that pod's. `requests` are what it may take. `replaces` is the UID of the pod that moves there, NO_POD for others.
    """

    key: str
    name: str
    team: TeamName
    requests: tuple[tuple[ResourceName, int], ...]
    replaces: Uid = NO_POD

    def has_room_for(self, demand: Demand) -> bool:
        """Whether a pod takes no more than this room."""
        kept = dict(self.requests)
        return all(amount <= kept.get(name, 0) for name, amount in demand.requests)


def controller_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of the next pod that a controller creates."""
    return f"{kind} {namespace}/{name}"
