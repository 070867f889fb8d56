"""Texts are in plain English: no word of the list below is in a page, a message, a comment or a function's name."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs import pages

UNWANTED = {
    r"anew": "again",
    r"whoever": "the caller, every user who",
    r"whom": "which",
    r"(?:no|some|any|every)body": "no user, no pod, another controller",
    r"lent": "borrowed",
    r"in vain": "without effect",
    r"errands?": "request, node action",
    r"onlookers?": "observer",
    r"clerks?": "ledger session",
    r"keepers?": "store, table",
    r"lookouts?": "watch",
    r"look(?:s|ed|ing)? on": "observe, shadow mode",
    r"the way out": "fallback",
    r"earnest": "enforced",
    r"seat(?:s|ed|ing)?": "place, node",
    r"told": "message, report",
    r"witness(?:es)?": "detector, audit",
    r"heirs?": "successor, beneficiary",
    r"yards?": "victims of a node",
    r"likewise": "also; write it out",
    r"entrances?": "access",
    r"kinship": "department",
    r"ow(?:e|es|ed|ing)": "due, has to",
    r"(?:come|comes|came|coming) whole": "is complete",
}
"""Expressions for words, and what to write instead. They match whole words in any case."""

IN_MESSAGES = UNWANTED | {
    r"wait(?:s|ing)? in line": "is queued",
    r"keeps? (?:its|their) gates?": "stays queued",
    r"held for (?:waiting|other|reclaim)": "reserved for",
    r"(?:are|is) to stay": "the minimum is",
}
"""The same for texts that users read: there are a queue and reservations, and no other word for them."""

SOURCES = [*(pages.ROOT / "webhook").rglob("*.py"), *(pages.ROOT / "certs").rglob("*.py")]
FOR_DEVELOPERS = [*(pages.ROOT / "tests").rglob("*.py"), *(pages.ROOT / "benchmarks").rglob("*.py")]
TEXTS = [
    path
    for folder in ("charts", "policies", "tests/cases")
    for path in (pages.ROOT / folder).rglob("*")
    if path.suffix in {".yaml", ".tpl", ".txt", ".json"}
]
GENERATED = {
    "docs/reference/cli.md",
    "docs/reference/codes.md",
    "docs/reference/metrics.md",
}  # from texts of the code, which are checked there
PRINTED = {"", "console", "json"}  # blocks in these languages show what a program printed

_BLOCK = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+`")


@cache
def _expression(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b".replace(" ", r"\s+"), re.IGNORECASE)


def unwanted(text: str, line: int = 1, *, words: Iterable[str] = UNWANTED) -> list[tuple[int, str]]:
    """Return each unwanted word of a text that begins on this line, with its line."""
    found = _expression(tuple(words)).finditer(text)
    return [(line + text.count("\n", 0, each.start()), each[0]) for each in found]


def prose(text: str) -> str:
    """Return a page without names of code and without what programs print, with every line in its place."""
    without = _BLOCK.sub(lambda block: "\n" * block[0].count("\n") if block[1] in PRINTED else block[0], text)
    return _SPAN.sub("", without)


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that users may read, each with its line: no docstrings but those of commands."""
    tree = ast.parse(source)
    documented = {
        id(node.value): parent
        for parent in ast.walk(tree)
        if isinstance(body := getattr(parent, "body", None), list)
        for node in body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parent = documented.get(id(node))
            if parent is None or is_command(parent):
                yield node.lineno, node.value


def notes(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments, docstrings, and names of functions and classes of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _SPAN.sub("", token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, _SPAN.sub("", node.value.value)


def is_command(node: ast.AST) -> bool:
    """Whether click shows the docstring of this function as the help of a command."""
    return isinstance(node, ast.FunctionDef) and any(
        re.search(r"\b(?:command|group)\b", ast.unparse(each)) for each in node.decorator_list
    )


def name(path: Path) -> str:
    return str(path.relative_to(pages.ROOT))


def test_pages_are_in_plain_words():
    found = [
        f"{pages.name(page)}:{line}: {word}"
        for page in pages.PAGES
        if pages.name(page) not in GENERATED
        for line, word in unwanted(prose(page.read_text()))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
def test_messages_and_help_are_in_plain_words():
    found = [
        f"{name(path)}:{line}: {word}"
        for path in sorted(SOURCES)
        for first, text in strings(path.read_text())
        for line, word in unwanted(text, first, words=IN_MESSAGES)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
def test_comments_and_names_of_functions_are_in_plain_words():
    found = [
        f"{name(path)}:{line}: {word}"
        for path in sorted([*SOURCES, *FOR_DEVELOPERS])
        if unwanted((source := path.read_text()).replace("_", " "))  # to read the tokens of all files takes long
        for first, text in notes(source)
        for line, word in unwanted(text, first)
    ]
    assert not found, "\n" + "\n".join(found)


def test_charts_policies_and_cases_are_in_plain_words():
    assert {path.suffix for path in TEXTS} == {".yaml", ".tpl", ".txt", ".json"}
    found = [f"{name(path)}:{line}: {word}" for path in sorted(TEXTS) for line, word in unwanted(path.read_text())]
    assert not found, "\n" + "\n".join(found)


def test_the_glossary_is_short():
    terms = [row[0] for row in pages.table(pages.ROOT / "docs" / "concepts" / "README.md", first="term")]
    assert len(terms) == len(set(terms)) <= 25


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("made anew", [(1, "anew")]),
        ("Nobody\nhears", [(1, "Nobody")]),
        ("a pod\nwaits in\nvain", [(2, "in\nvain")]),
        ("the talent of a bookkeeper is not renewed", []),
    ],
    ids=["a word", "a capital", "an expression over two lines", "parts of other words"],
)
def test_words_are_found_whole(text, want):
    assert unwanted(text) == want


def test_names_of_code_and_output_of_programs_are_left_out_of_pages():
    page = "A `clerk`.\n```console\n$ a\ntold\n```\n```yaml\na: 1  # anew\n```\nlent\n"
    assert unwanted(prose(page)) == [(7, "anew"), (9, "lent")]


SOURCE = '''"""Of a module: told."""
LIMIT = 1
"""Of a constant: lent."""

@main.command("ask")
def ask():
    """Of a command: anew."""
    raise Error(f"{LIMIT} for nobody")

def plain():
    """Of a function: clerk."""
'''


def test_docstrings_are_left_out_but_those_of_commands():
    found = [hit for line, text in strings(SOURCE) for hit in unwanted(text, line)]
    assert sorted(found) == [(7, "anew"), (8, "nobody")]


NOTED = '''"""Of a module: told."""
LIMIT = "not read: whoever"  # of a line: lent, not `clerk`

async def ask_nobody(anew):
    """Of a function: anew."""
'''


def test_comments_docstrings_and_names_are_read():
    found = [hit for line, text in notes(NOTED) for hit in unwanted(text, line)]
    assert sorted(found) == [(1, "told"), (2, "lent"), (4, "nobody"), (5, "anew")]


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a module that people read in one piece: no docstring, no help, no code of another language."""
    tree = ast.parse(path.read_text())
    helps = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg in HELP}
    docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in helps | docs:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


HELP = {"help", "epilog", "description", "documentation"}
LONGEST = 200
FOREIGN = re.compile(r"^\(\?i\)|^\^|&&|\|\||has\(|\n|\b(?:SELECT|INSERT|DELETE) ")
"""Expressions, CEL, SQL, and texts of several lines."""
REFERENCE = {"metrics.py", "processes.py", "gpu_time.py", "logs.py"}
"""Modules whose long texts describe metrics and log fields, in the reference."""


@pytest.mark.parametrize("path", [each for each in SOURCES if each.name not in REFERENCE], ids=lambda path: path.name)
def test_no_message_is_too_long_to_be_read_at_once(path):
    assert [each for each in texts_of(path) if len(each) > LONGEST and not FOREIGN.search(each)] == []
