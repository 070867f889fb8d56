"""Where API servers of different minors serve the same objects."""

from typing import Final

from webhook.kube.objects import keys

_HEADS: Final = tuple(f"/apis/{keys.DEVICES_GROUP}/{version}/" for version in keys.DEVICES_VERSIONS)


def served_paths(path: str) -> tuple[str, ...]:
    """Return a path in each version of its API that an API server may have, in the order in which to try them."""
    newest = _HEADS[0]
    return tuple(head + path.removeprefix(newest) for head in _HEADS) if path.startswith(newest) else (path,)
