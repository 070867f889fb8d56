"""Takes the documentation apart: fenced blocks, tables, links, headings, command lines."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "policies" / "README.md"])
SHELL = ("console", "sh")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_OURS = ("fairgate", "make")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block and its language."""

    language: str
    text: str


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


def commands(page: Path) -> list[list[str]]:
    """Every whole command line of Fairgate or make in a shell block, as words."""
    found = []
    for block in blocks(page):
        if block.language not in SHELL:
            continue
        text = block.text.replace("\\\n", " ")
        lines = [line for line in text.splitlines() if block.language == "sh" or line.startswith("$ ")]
        for line in lines:
            for part in re.split(r"[|;>]|&&", line.removeprefix("$ ")):
                words = shlex.split(part, comments=True)
                if words and words[0] in _OURS:
                    found.append(words)
    return found


def mentions(page: Path) -> list[list[str]]:
    """Every `fairgate …` or `make …` in backticks in the text: not always whole."""
    return [shlex.split(span) for span in re.findall(r"`((?:fairgate|make) [^`\n]+)`", prose(page))]
