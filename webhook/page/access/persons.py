"""Room that persons share: so much of one, so much in all, and who has most yields to one who has less. Pure."""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")


class _Kept(NamedTuple, Generic[Value]):
    person: str
    value: Value


def yields_to(newcomer: str, counts: Mapping[str, int]) -> str | None:
    """Return the person who gives up one of theirs for a newcomer: the one with most; None if it would be no fairer."""
    most = max(counts, key=lambda person: (counts[person], person), default=None)
    return most if most is not None and counts[most] > counts.get(newcomer, 0) + 1 else None


class KeptByPerson(Generic[Value]):
    """Values by a key, each of one person. Of one person the latest used `of_one` are kept, `in_all` of all."""

    def __init__(self, *, in_all: int, of_one: int) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._kept: OrderedDict[str, _Kept[Value]] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Value | None:
        """Return a value, which is the latest used then; None where it is not kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found.value

    def set(self, key: str, person: str, value: Value) -> None:
        """Keep a value; another one goes where there is no room for it."""
        self.pop(key)
        if self._counts[person] >= self._of_one:
            self._drop_oldest_of(person)
        elif len(self._kept) >= self._in_all:
            most = yields_to(person, self._counts) or (person if self._counts[person] else None)
            if most is None:  # no person has more than one
                self.pop(next(iter(self._kept)))
            else:
                self._drop_oldest_of(most)
        self._kept[key] = _Kept(person, value)
        self._counts[person] += 1

    def pop(self, key: str) -> None:
        """Forget a value; one that is not kept changes nothing."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._counts[found.person] -= 1
            if not self._counts[found.person]:
                del self._counts[found.person]

    def _drop_oldest_of(self, person: str) -> None:
        self.pop(next(key for key, each in self._kept.items() if each.person == person))
