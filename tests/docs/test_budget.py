"""Pages stay short: words of each, of all, and of what two readers read; words of a sentence; one word for one thing.

Words are counted as `wc -w` does, with code and tables. A page that is over its limit says something that belongs on
another page, or in a docstring, or nowhere.
"""

import re
from collections.abc import Iterator

import pytest

from tests.docs import pages
from tests.docs.test_words import unwanted

LIMITS = {
    "CONTRIBUTING.md": 1200,
    "README.md": 750,
    "SECURITY.md": 200,
    "docs/README.md": 250,
    "docs/reference/attempts.md": 2600,
    "docs/tasks/certificates.md": 650,
    "docs/concepts/README.md": 1800,
    "docs/concepts/gangs.md": 900,
    "docs/reference/guards.md": 1400,
    "docs/tasks/install.md": 1000,
    "docs/tasks/migration.md": 800,
    "docs/tasks/operate.md": 1200,
    "docs/concepts/placement.md": 1050,
    "docs/concepts/queue.md": 750,
    "docs/tasks/quickstart.md": 920,
    "docs/concepts/reclaim.md": 2600,
    "docs/tasks/registration-files.md": 380,
    "docs/reference/rights.md": 1000,
    "docs/tasks/runbooks.md": 1350,
    "docs/tasks/saving.md": 1050,
    "docs/concepts/security.md": 1400,
    "docs/reference/signals.md": 2150,
    "docs/tasks/troubleshoot.md": 1250,
    "docs/tasks/users-more.md": 900,
    "docs/tasks/users.md": 900,
}
"""The words that a page may have. A page that is not here has no limit of its own yet."""

ALL = 75_000
ADMIN, DATA_SCIENTIST = 3000, 900
FIRST_POLICY = (
    ("README.md", ""),
    ("docs/concepts/README.md", "## Off, shadow, warn, enforce"),
    ("docs/tasks/install.md", ""),
    ("docs/tasks/troubleshoot.md", "## The checks"),
)
"""What an admin reads from the first page to a policy in force in a cluster of their own, each up to a heading."""

ROUGH = {"docs/reference/attempts.md"}
"""Pages of which neither sentences nor single words are checked: lists, and texts of the code."""

LONGEST_SENTENCE = 30
GLOSSARY = {
    r"in line": "queued, in the queue",
    r"borrowers?": "preemptible pod",
    r"let(?:s|ting)? go": "release",
    r"(?:take|takes|taken|taking|give|gives|given) back": "reclaim",
    r"mend(?:s|ed|ing)?": "fix",
    r"the world": "snapshot",
    r"makes? room": "free room, reclaim",
}
"""Words for which the glossary of docs/concepts/README.md has another one; in backticks a program prints them."""

_SPAN = re.compile(r"`[^`]*`")
_TARGET = re.compile(r"\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[^a-z])")
LIMITED = [page for page in pages.PAGES if pages.name(page) in LIMITS]
each_page = pytest.mark.parametrize("page", LIMITED, ids=pages.name)
written = pytest.mark.parametrize("page", [page for page in LIMITED if pages.name(page) not in ROUGH], ids=pages.name)
_DEFINITION = re.compile(r"^\[[^\]]+\]: .*$", re.MULTILINE)


def words(page: str, until: str = "") -> int:
    text = (pages.ROOT / page).read_text()
    return len((text[: text.index(f"\n{until}\n")] if until else text).split())


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence of paragraphs and lists: no headings, no tables, no code."""
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if starts or not line.strip() or line.startswith(("#", "|")):
            yield from _END.split(" ".join(paragraph))
            paragraph = []
        if line.strip() and not line.startswith(("#", "|")):
            paragraph.append(line[starts.end() :] if starts else line.strip())


def test_every_limited_page_exists():
    assert [pages.name(page) for page in LIMITED] == sorted(LIMITS)


@each_page
def test_a_page_stays_inside_its_limit(page):
    assert words(pages.name(page)) <= LIMITS[pages.name(page)]


def test_all_pages_stay_inside_the_limit():
    assert sum(words(pages.name(page)) for page in pages.PAGES) <= ALL


def test_an_admin_reads_little_before_a_first_policy():
    assert sum(words(*each) for each in FIRST_POLICY) <= ADMIN


def test_a_data_scientist_reads_little():
    assert words("docs/tasks/users.md") <= DATA_SCIENTIST


@written
def test_sentences_are_short(page):
    plain = _TARGET.sub("]", _SPAN.sub("CODE", _DEFINITION.sub("", pages.prose(page))))
    assert [each for each in sentences(plain) if len(each.split()) > LONGEST_SENTENCE] == []


@written
def test_one_word_stands_for_one_thing(page):
    found = unwanted(_SPAN.sub("", pages.prose(page)), words=GLOSSARY)
    assert found == [], "docs/concepts/README.md#words"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("One is here.\nTwo is\nthere.", ["One is here.", "Two is there."]),
        ("# A heading\n- first\n- second. Third", ["first", "second.", "Third"]),
        ("| a | row |\ntext", ["text"]),
    ],
    ids=["a paragraph", "a list", "a table"],
)
def test_sentences_are_found(text, want):
    assert [each for each in sentences(text) if each] == want
