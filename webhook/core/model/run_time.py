"""How long a pod runs, as its user says. It is information for likely starts: no decision reads it."""

from typing import Final, NamedTuple

MAX_SECONDS: Final = 365 * 86_400
"""The longest run that is stated, drawn or forecast."""


class RunTime(NamedTuple):
    """What is said of a pod's run, in seconds; 0 where nothing is.

    `stated` is its annotation, `most` the deadline after which it is ended. `problem` says why the annotation is
    ignored, "" if it is not.
    """

    stated: int = 0
    most: int = 0
    problem: str = ""


NO_RUN_TIME: Final = RunTime()
