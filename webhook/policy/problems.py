"""Problems of policy files, with file, line and field: what every check reports."""

import re
from dataclasses import dataclass

from webhook.input_error import InputError

Path = tuple[str | int, ...]
"""Path of a field in its document: field names and list indexes."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct. `line` counts from 1 and is 0 for the whole file; `path` is "" for a whole document."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class PolicyError(InputError):
    """The policy is invalid; has every problem found."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(*map(str, problems))
        self.problems = problems


class PolicyUnreadable(InputError):  # noqa: N818 - the name says what happened; "Error" would add nothing
    """The policy files cannot be read: missing, no permission, or deleted while they were read."""


def path_text(path: Path) -> str:
    """Return a path as the Kubernetes API writes it: `pools[0].nodeSelector[nvidia.com/gpu.product]`."""
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def described(value: object) -> str:
    """Return a short description of a value in a file."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the word {str(value).lower()}"
        case int() | float():
            return f"the number {shortened(str(value))}"
        case str():
            return f'"{shortened(value)}"'
        case dict():
            return "a mapping"
        case _:
            return "a list"


def shortened(text: str, longest: int = 60) -> str:
    """Return a text on one line, cut to a length that fits a message."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."
