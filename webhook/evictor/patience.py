"""Who is left alone for a while: victims that may not go now, waiting pods for which room was made in vain."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from webhook.core.names import Uid

TRIES: Final = 5
"""How often in a row room is made in vain for one pod, before it is left alone for long."""

REST_SECONDS: Final = 5.0
"""Rest after the second vain try; it doubles with each."""

LONG_SECONDS: Final = 600.0
"""Rest after the last: something is wrong that evictions do not mend."""


@dataclass(slots=True)
class Patience:
    """Counts tries, and remembers until when somebody rests, by the clock that it is given."""

    clock: Callable[[], float]
    _until: dict[Uid, float] = field(default_factory=dict)
    _tries: dict[Uid, int] = field(default_factory=dict)

    def rest(self, uid: Uid, seconds: float) -> None:
        """Leave a pod alone."""
        self._until[uid] = self.clock() + seconds

    def resting(self) -> frozenset[Uid]:
        """List who is left alone now."""
        now = self.clock()
        self._until = {uid: until for uid, until in self._until.items() if until > now}
        return frozenset(self._until)

    def next_end(self) -> float | None:
        """Tell when the next one is looked at again; None where nobody rests."""
        return min(self._until.values(), default=None)

    def fail(self, uid: Uid) -> float | None:
        """Count a vain try; gives the rest where it is the long one, None where it is not."""
        tries = self._tries[uid] = self._tries.get(uid, 0) + 1
        if tries >= TRIES:
            del self._tries[uid]
            self.rest(uid, LONG_SECONDS)
            return LONG_SECONDS
        if tries > 1:
            self.rest(uid, REST_SECONDS * 2 ** (tries - 2))
        return None

    def forget(self, uid: Uid) -> None:
        """Forget about a pod: it has what it wanted, or is gone."""
        self._until.pop(uid, None)
        self._tries.pop(uid, None)
