"""After creation: nobody but Fairgate changes a pod's team, tier or decision."""

from dataclasses import dataclass

from webhook.core.decision import Deny, NotApplicable
from webhook.core.pod import Requester
from webhook.core.reason import Code, Reason

_UNTOUCHED = NotApplicable(Reason(Code.NOT_A_CREATE, "the update leaves Fairgate's labels and decision alone"))


@dataclass(frozen=True, slots=True)
class Trust:
    """Who may change the keys: users that an admin named, and Fairgate itself.

    Fairgate may run as a user who does other things as well (an admin's kubeconfig), so that name alone is not enough:
    the write must also say that Fairgate's field manager made it. Nobody else's word counts.
    """

    users: frozenset[str] = frozenset()
    own_user: str = ""
    own_manager: str = ""

    def covers(self, requester: Requester, *, field_manager: str) -> bool:
        """Tell whether this writer may change the keys."""
        if requester.username in self.users:
            return True
        is_us = bool(self.own_user) and requester.username == self.own_user
        return is_us and field_manager == self.own_manager


@dataclass(frozen=True, slots=True)
class ProtectedKeys:
    """The keys that only Fairgate writes; None where the pod does not carry one."""

    team: str | None
    tier: str | None
    decision: str | None


def guard(old: ProtectedKeys, new: ProtectedKeys, *, is_trusted: bool) -> Deny | NotApplicable:
    """Refuse an update that changes a protected key, unless its writer is trusted."""
    if old == new or is_trusted:
        return _UNTOUCHED
    changes = (
        ("label fairgate.dev/team", old.team, new.team),
        ("label fairgate.dev/tier", old.tier, new.tier),
        ("annotation fairgate.dev/decision", old.decision, new.decision),
    )
    told = "; ".join(
        f"{key} from {_show(before)} to {_show(after)}" for key, before, after in changes if before != after
    )
    return Deny((Reason(Code.PROTECTED_KEY_CHANGED, f"only Fairgate may change {told}: leave it as it is"),))


def _show(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= 40 else f"{value[:37]}..."  # noqa: PLR2004  # long decisions are cut for reading
