"""The subject that the user named: a pod or a workload of the cluster by KIND/NAME, or manifests in a file. Pure."""

from dataclasses import dataclass
from typing import Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.kind_row import KindTable, Row

POD: Final = WorkloadKind("", "Pod", "pods")
_SHORT: Final = {
    "po": "pod",
    "rc": "replicationcontroller",
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "cj": "cronjob",
    "lws": "leaderworkerset",
    "isvc": "inferenceservice",
    "ksvc": "service.serving.knative.dev",
    "sparkapp": "sparkapplication",
    "sdep": "seldondeployment",
}
"""The short names that kubectl knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """An object of the cluster: its kind, the known versions of its API ("*": the API server lists them), its name."""

    kind: WorkloadKind
    versions: tuple[str, ...]
    name: str

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod itself."""
        return (self.kind.group, self.kind.kind) == ("", "Pod")


def read_target(what: str, kinds: KindTable) -> Target | None:
    """Return the target of KIND/NAME as kubectl reads it: a kind, its plural or short name, with .GROUP if ambiguous.

    None where it is something else, such as a path.
    """
    kind, slash, name = what.partition("/")
    if not slash or not name or "/" in name:
        return None
    named = _SHORT.get(kind.lower(), kind.lower())
    row = next((row for row in kinds.values() if named in _names(row)), None)
    return None if row is None else Target(row.kind, row.versions, name)


def _names(row: Row) -> tuple[str, ...]:
    kind = row.kind
    plain = (kind.kind.lower(), kind.resource)
    full = tuple(f"{name}.{kind.group}" for name in plain) if kind.group else ()
    return full if kind.kind == "Service" else (*plain, *full)
