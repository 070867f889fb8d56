"""The rules of messages to people: where they go, of what, and how often. See the section `notify` of the policy."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class NotifyKind(StrEnum):
    """What messages are about. Evictions and idle reports happen; refusals, limits and trouble begin and end."""

    EVICTIONS = "evictions"
    REFUSALS = "refusals"
    LIMITS = "limits"
    IDLE = "idle"
    TROUBLE = "trouble"


class NotifyTemplate(StrEnum):
    """The format of a message."""

    JSON = "json"
    SLACK = "slack"
    ALERTMANAGER = "alertmanager"


@dataclass(frozen=True, slots=True)
class SecretHeader:
    """A request header whose value is `prefix` and the content of a file in the folder of secrets."""

    name: str
    file: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """One receiver: `url`, or the content of `url_file`. File names are of the folder of secrets."""

    name: str
    url: str = ""
    url_file: str = ""
    template: NotifyTemplate = NotifyTemplate.JSON
    kinds: frozenset[NotifyKind] = frozenset(NotifyKind)
    interval_seconds: int = 600
    repeat_seconds: int = 14_400
    header: SecretHeader | None = None
    ca_file: str = ""

    @property
    def again_seconds(self) -> int:
        """How long after a message the same state is sent again: Alertmanager forgets what is not sent again."""
        is_alert = self.template is NotifyTemplate.ALERTMANAGER
        return self.interval_seconds if is_alert else max(self.interval_seconds, self.repeat_seconds)


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """All receivers, and from when on there is something to say.

    Refusals: more than `refusals` of one team within `refusals_within_seconds`. Limits: use of at least `limit_share`
    of one. `cluster` is the name of this cluster in messages.
    """

    targets: tuple[NotifyTarget, ...] = ()
    cluster: str = ""
    refusals: int = 20
    refusals_within_seconds: int = 600
    limit_share: Fraction = Fraction(9, 10)

    def wants(self, kind: NotifyKind) -> bool:
        """Whether any target gets messages of a kind."""
        return any(kind in target.kinds for target in self.targets)
