"""Labels of many pods, kept small: as one shared text, read only when somebody asks for them."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from sys import intern

from webhook.core.names import Labels


def pack(labels: Mapping[str, str]) -> Labels:
    """Keep labels as one text; pods of one template share it."""
    return Labels(intern("\0".join(chain.from_iterable(labels.items()))))


@lru_cache(maxsize=4096)
def unpack(packed: Labels) -> Mapping[str, str]:
    """Read them back."""
    parts = packed.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))
