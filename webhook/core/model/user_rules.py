"""What policy says of the users behind pods: limits per user count them."""

from dataclasses import dataclass
from enum import StrEnum


class UserSource(StrEnum):
    """Where the user behind a controller's pod is read from."""

    NAMESPACE_ANNOTATION = "namespaceAnnotation"
    NAMESPACE_LABEL = "namespaceLabel"
    POD_ANNOTATION = "podAnnotation"
    POD_LABEL = "podLabel"


@dataclass(frozen=True, slots=True)
class UserKey:
    """One source for the user of a controller's pod: the first one present counts."""

    source: UserSource
    key: str


class UnknownUser(StrEnum):
    """How the limit per user applies where the user of a pod is not known."""

    IGNORE = "ignore"
    NAMESPACE = "namespace"
