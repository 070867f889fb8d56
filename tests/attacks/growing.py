"""Objects that a tenant enlarges: any part of a sample of any kind, any number of times, and the work that they make.

Work is counted, not timed: the lines of Python that run, and the memory that is taken at its peak.
"""

import copy
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
Path = tuple[str | int, ...]

LONGEST: Final = 250 * 1024
"""Bytes of a grown object: where values count most, larger ones are refused by their number of values."""


class Growth(NamedTuple):
    """One part of an object, and how often it is repeated."""

    path: Path
    how: str
    times: int


def paths(value: object, at: Path = ()) -> Iterator[Path]:
    """Yield the places of all values in an object, besides itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from paths(item, (*at, key))


def at(value: Any, path: Path) -> Any:
    """Return the value at a place."""
    for key in path:
        value = value[key]
    return value


def put(value: Any, path: Path, new: object) -> Any:
    """Return an object with another value at a place."""
    if not path:
        return new
    made = copy.copy(value)
    made[path[0]] = put(value[path[0]], path[1:], new)
    return made


def ways(value: object) -> list[str]:
    """Return how a value can grow."""
    if isinstance(value, bool) or value is None:
        return ["deeper"]
    if isinstance(value, int | float):
        return ["larger", "deeper"]
    if isinstance(value, str):
        return ["longer", "inserted", "deeper"]
    return ["more", "deeper"] if value else ["deeper"]


def grown(document: Json, growths: list[Growth]) -> Json:
    """Return an object with parts of it grown, as far as it stays below the limit of its size."""
    for path, how, times in growths:
        try:
            value = at(document, path)
            size = len(json.dumps(value)) + 1
        except (KeyError, IndexError, TypeError):
            continue  # inside a part that grew deeper
        made = put(document, path, _grown(value, how, max(1, min(times, LONGEST // size))))
        if len(json.dumps(made)) <= LONGEST:
            document = made
    return document


def _grown(value: Any, how: str, times: int) -> Any:
    if how == "deeper":
        for number in range(min(times, 400)):
            value = [value] if number % 2 else {"a": value}
        return value
    if how == "inserted":
        return "{{workflow.parameters.p}}" * times
    if isinstance(value, list):
        return [*value, *(_named(value[number % len(value)], number) for number in range(times))]
    if isinstance(value, dict):
        items = list(value.values())
        return value | {f"more-{number}": items[number % len(items)] for number in range(times)}
    return value * 10 ** min(times, 300) if not isinstance(value, str) else value * times


def _named(value: Any, number: int) -> Any:
    """Return an entry of a list with a name of its own, where it has one."""
    return value | {"name": f"{value['name']}-{number}"[:60]} if isinstance(value, dict) and "name" in value else value


class Work(NamedTuple):
    """What a call took, besides its result."""

    lines: int
    peak_bytes: int


def work_of(call: Callable[[], object]) -> Work:
    """Count the lines of Fairgate that a call runs: each turn of a loop counts."""
    lines = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def trace(frame: FrameType, _event: str, _arg: object) -> Any:
        return count if "/webhook/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Work(lines, peak)
