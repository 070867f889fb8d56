"""Garbage collection in a service: what it keeps of a cluster is not traversed again and again.

A world is a tree of values, which counting references frees. The collector is needed for cycles only, and those that a
request leaves are young. A collection takes 1 to 2 us an object, so one of 400,000 objects would delay all decisions by
0.3 s and more. Here none looks at more than about 15,000: what has survived two is left out from then on (`gc.freeze`).
A cycle that outlives two would stay for good. The code leaves none, but libraries may, and what clients send may make
them: once what is left out has doubled, all of it is collected.
"""

import asyncio
import gc
from typing import Any, Final

YOUNG: Final = 5_000
"""New objects after which the collector looks at them. Its default of 700 comes every few pods, and finds little."""

_OLDER: Final = 1
"""After so many such collections what survived them is looked at again, and then left out."""

_NEVER: Final = 1_000_000

LOOK_SECONDS: Final = 120.0
"""How often what is left out is counted, which takes some nanoseconds an object."""

SPARE: Final = 500_000
"""Objects that may be left out beyond twice as many as a collection of all has found alive, some 100 MB."""


def leave_out_what_stays() -> None:
    """Collect young garbage only, in this process, from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _OLDER, _NEVER)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


async def collect_what_was_left_out() -> None:
    """Collect all once what is left out has doubled, until cancelled. It delays everything else by 1 to 2 us an object.

    So it comes once while a process takes in a large cluster, and then only if garbage has gathered.
    """
    most = _most()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if gc.get_freeze_count() > most:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            most = _most()


def _most() -> int:
    return 2 * gc.get_freeze_count() + SPARE


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"]:
        gc.freeze()
