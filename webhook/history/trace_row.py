"""The rows of what came: pods and refused requests, the objects around them, the policies in force.

`fairgate replay` decides them again. Objects are kept as JSON with the fields that Fairgate reads, as in a world file.
"""

from typing import Final, NamedTuple

from webhook.kube.objects.keys import RUN_TIME, RUN_TIME_LIMIT

MAX_OBJECT_BYTES: Final = 16_384
"""A larger pod or node is kept without its object: usage counts it, and replay names how many it leaves out."""

SCALERS_OF_NAMESPACE: Final = 100
"""HorizontalPodAutoscalers of one namespace in a file, and in one batch."""


class PodRow(NamedTuple):
    """A pod, or requests that were refused alike. Times are Unix time, 0 where it did not come to that.

    Of refused requests `code` is the reason, `times` their number, `created` the first and `ended` the last of them.
    `object` is "" where it is not known, or too large.
    """

    uid: str
    namespace: str
    name: str
    owner: str = ""
    team: str = ""
    user: str = ""
    tier: str = ""
    gpus: float = 0.0
    created: float = 0.0
    bound: float = 0.0
    ended: float = 0.0
    code: str = ""
    times: int = 0
    object: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether it stands for refused requests."""
        return bool(self.code)


class EndedRow(NamedTuple):
    """A pod that ran and ended, with what was said of its run: two annotations, "" without them, and a deadline."""

    uid: str
    team: str
    user: str
    gpus: float
    created: float
    bound: float
    ended: float
    run_time: str = ""
    limit: str = ""
    deadline: int = 0

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations that it had of these."""
        return {key: value for key, value in ((RUN_TIME, self.run_time), (RUN_TIME_LIMIT, self.limit)) if value}


class ObjectRow(NamedTuple):
    """What surrounds pods, as it was last: a node, say, or what scales a workload; `until` is 0 while it exists.

    `name` is namespace/name for kinds in namespaces.
    """

    kind: str
    name: str
    since: float
    until: float = 0.0
    object: str = ""


class PolicyRow(NamedTuple):
    """A policy that was in force from a time on, as YAML."""

    hash: str
    since: float
    documents: str


class Trace(NamedTuple):
    """What came in a time range."""

    pods: tuple[PodRow, ...] = ()
    objects: tuple[ObjectRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()


NO_TRACE: Final = Trace()
