"""Finds Fairgate's objects that refer to themselves and are in use no longer: services keep such garbage for long."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cycles() -> Iterator[Counter[str]]:
    """Yield the count of them by type, which is filled at the end of the block."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        types = (type(each) for each in gc.garbage)
        found.update(each.__qualname__ for each in types if each.__module__.startswith("webhook."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()
