"""Parses the documentation: fenced blocks, tables, links, headings, commands and the files that a page shows."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "charts").rglob("*.md"),
        ROOT / "policies" / "README.md",
    ]
)
SHELL = ("console", "sh")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"`([\w.-]+(?:/[\w.-]+)*\.(?:yaml|json|csv|py|sh))`:\n+$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block and its language."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """A block below a line that ends with its name, as in "A policy, `policy/teams.yaml`:"."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what the page shows it print; `start` and `end` are where that stands in the page."""

    command: str
    shown: str
    start: int
    end: int


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(page.read_text())]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Links to other files or headings of this repository."""
    return [link for link in _LINK.findall(prose(page)) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the page's headings."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in _HEADING.findall(prose(page))}


def table(page: Path, *, first: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading, without backticks; `\\|` is a bar in a cell."""
    for found in _TABLE.findall(page.read_text()):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in found.splitlines()]
        cells = [[cell.strip().replace("\\|", "|").replace("`", "") for cell in row] for row in rows]
        if cells[0][0] == first:
            return cells[2:]
    raise AssertionError(f"{name(page)} has no table of {first}")


def script(page: Path, *, until: str = "") -> Iterator[File | Step]:
    """The files and commands of a page in their order, on request only up to a heading."""
    text = page.read_text()
    end = text.index(f"\n{until}\n") if until else len(text)
    for found in _FENCE.finditer(text, 0, end):
        language, body = found.groups()
        named = _FILE_NAME.search(text[: found.start()])
        if language in SHELL:
            yield from _steps(body, at=found.start(2), is_session=language == "console")
        elif named:
            yield File(named[1], body)


def _steps(body: str, *, at: int, is_session: bool) -> Iterator[Step]:
    """Parse a block: in a session lines after `$ ` are commands and others output; in `sh` all are commands."""
    prompt = r"\$ " if is_session else r"(?!#)"
    command = re.compile(rf"^{prompt}(\S(?:.*\\\n)*.*\n)", re.MULTILINE)
    found = list(command.finditer(body))
    if is_session and found and found[0][1].startswith("make "):
        del found[1:]  # what follows is printed by the first
    for each, following in zip(found, [*found[1:], None], strict=True):
        end = following.start() if following else len(body)
        shown = body[each.end() : end] if is_session else ""
        line = re.sub(r" *\\\n *", " ", each[1])
        yield Step(re.sub(r"  +# .*", "", line).strip(), shown, at + each.end(), at + end)


def mentions(page: Path) -> list[list[str]]:
    """Every `fairgate …` or `make …` in backticks in the text: not always whole."""
    return [shlex.split(span) for span in re.findall(r"`((?:fairgate|make) [^`\n]+)`", prose(page))]
