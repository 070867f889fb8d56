"""How far a watch has come in the history of its kind."""

from webhook.cluster.api.wire import version_of


class Position:
    """A resourceVersion: "" where the history is not known, which asks for a list.

    The version of an event is read when somebody asks for it, for reading it costs half as much as the event itself.
    """

    def __init__(self) -> None:
        self._version = ""
        self._reached = 0
        self._line: bytes | None = None

    @property
    def version(self) -> str:
        """Where a watch may go on."""
        self._settle()
        return self._version

    @property
    def reached(self) -> int:
        """The last version known as a number; it stays when the history is lost."""
        self._settle()
        return self._reached

    def passes(self, line: bytes) -> None:
        """Go on to the version of an event's object, which was applied."""
        self._line = line

    def lose(self) -> None:
        """Forget where a watch may go on; what was reached stays."""
        self._settle()
        self._version = ""

    def set(self, version: str) -> None:
        """Go to a version, also back to a smaller one."""
        self._line = None
        self._version = version
        if version.isdecimal():
            self._reached = int(version)

    def _settle(self) -> None:
        if self._line is not None:
            self.set(version_of(self._line))
