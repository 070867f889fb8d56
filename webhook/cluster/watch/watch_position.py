"""The resourceVersion that a watch has reached."""

from webhook.cluster.api.wire import version_of


class WatchPosition:
    """A resourceVersion; "" if it is unknown, which requires a list.

    The version of an event is decoded on demand, because that costs half as much as decoding the event.
    """

    def __init__(self) -> None:
        self._version = ""
        self._reached = 0
        self._line: bytes | None = None

    @property
    def version(self) -> str:
        """The version from which a watch can continue, "" if a list is needed."""
        self._read_version()
        return self._version

    @property
    def reached(self) -> int:
        """The last known version as an integer; `reset` keeps it."""
        self._read_version()
        return self._reached

    def advance(self, line: bytes) -> None:
        """Move to the version of an event's object, which was applied."""
        self._line = line

    def reset(self) -> None:
        """Require a list; `reached` stays."""
        self._read_version()
        self._version = ""

    def set(self, version: str) -> None:
        """Move to a version, also back to a smaller one."""
        self._line = None
        self._version = version
        if version.isdecimal():
            self._reached = int(version)

    def _read_version(self) -> None:
        if self._line is not None:
            self.set(version_of(self._line))
