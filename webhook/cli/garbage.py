"""Garbage collection in a service: what it keeps of a cluster is not traversed again and again.

A world is a tree of values, which counting references frees. The collector is needed for cycles only, and those that a
request leaves are young. A collection takes 0.5 to 2 us an object, so one of 400,000 objects would delay all decisions
by 0.3 s and more. Here what has survived two collections is left out from then on (`gc.freeze`).

The interpreter collects once 5,000 more objects were made than freed. Where new objects replace old ones, as with each
event of a pod, that never comes, while the young ones become hundreds of thousands. So they are collected by time, too.

A cycle that outlives two collections would stay for good. The code leaves none, but libraries may, and what clients
send may make them: once memory has doubled, and the process has little to do, all of it is collected.
"""

import asyncio
import gc
import resource
import time
from pathlib import Path
from typing import Any, Final

YOUNG: Final = 5_000
"""New objects, less those that were freed, after which the collector looks at them. Its default of 700 comes every few
pods, and finds little."""

_OLDER: Final = 1
"""After so many such collections what survived them is looked at again, and then left out."""

_NEVER: Final = 1_000_000

_STATM: Final = Path("/proc/self/statm")

LOOK_SECONDS: Final = 0.1
"""How often young objects are collected, however few there seem to be."""

_LOOKS: Final = 100
"""After so many it is asked whether all is to be collected."""

QUIET_SHARE: Final = 0.1
"""Part of a core below which a process has little to do: a collection of all delays each request by a second or two."""

SPARE_KIB: Final = 200 * 1024
"""Memory beyond twice as much as after the last collection of all, which a process may use before the next one."""


def leave_out_what_stays() -> None:
    """Collect young garbage only, in this process, from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _OLDER, _NEVER)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


async def collect_garbage() -> None:
    """Collect young objects again and again, and all once memory has doubled and little is to be done, until cancelled.

    All is collected at most once while a process takes in a large cluster, and then only if garbage has gathered.
    """
    most = _most_kib()
    while True:
        began, used = time.monotonic(), time.process_time()
        for number in range(_LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            gc.collect(number % 2)
        is_quiet = time.process_time() - used <= QUIET_SHARE * (time.monotonic() - began)
        if is_quiet and _resident_kib() > most:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            most = _most_kib()


def _resident_kib() -> int:
    """Return the memory of this process; getrusage gives a peak that it has from the process that started it."""
    if not _STATM.exists():
        return 0  # elsewhere than on Linux all is never collected
    return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024


def _most_kib() -> int:
    return 2 * _resident_kib() + SPARE_KIB


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"]:
        gc.freeze()
