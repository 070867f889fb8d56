"""One or two letters for each team, which say on the map whose a GPU is where colors do not. Pure."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from string import ascii_lowercase, digits


def team_letters(names: Sequence[str]) -> dict[str, str]:
    """Return the first letter of each name in order, and where several begin alike a second that tells them apart.

    Of more than 36 names that begin alike, the last have the first letter alone.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name[:1].upper(), []).append(name)
    found: dict[str, str] = {}
    for first, group in alike.items():
        seconds = _seconds(group) if len(group) > 1 else [""]
        found |= {name: first + second for name, second in zip(group, seconds, strict=True)}
    return {name: found[name] for name in names}


def _seconds(names: Sequence[str]) -> list[str]:
    """Return a letter of each name that no other name has in its place, else one that is not taken."""
    counts = Counter(at for name in names for at in enumerate(name.lower()))
    taken: set[str] = set()
    found = []
    for name in names:
        own = (letter for at, letter in enumerate(name.lower()) if at and counts[at, letter] == 1)
        free = chain(own, name[1:].lower(), digits, ascii_lowercase)
        letter = next((each for each in free if each.isalnum() and each not in taken), "")
        taken.add(letter)
        found.append(letter)
    return found
