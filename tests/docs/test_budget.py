"""Pages stay short: words of each, of all, and of what two readers read; words of a sentence; one word for one thing.

Words are counted as `wc -w` does, with code and tables. A page that is over its limit says something that belongs on
another page, or in a docstring, or nowhere.
"""

import re
from collections.abc import Iterator

import pytest

from tests.docs import pages
from tests.docs.excluded import EXCLUDED_COMMANDS
from tests.docs.page_tables import TABLES
from tests.docs.stages import STAGES
from tests.docs.test_words import GENERATED, unwanted

LIMITS = {
    "CHANGELOG.md": 350,
    "CONTRIBUTING.md": 1050,
    "README.md": 800,
    "SECURITY.md": 250,
    "charts/fairgate/README.md": 2050,
    "docs/README.md": 250,
    "docs/adr/README.md": 350,
    "docs/concepts/README.md": 1700,
    "docs/comparison.md": 1800,
    "docs/concepts/gangs.md": 850,
    "docs/concepts/placement.md": 1050,
    "docs/concepts/queue.md": 650,
    "docs/concepts/reclaim.md": 2600,
    "docs/concepts/security.md": 1300,
    "docs/architecture.md": 1900,
    "docs/development/releasing.md": 500,
    "docs/reference/attempts.md": 2450,
    "docs/benchmarks.md": 1900,
    "docs/reference/cli.md": 4250,
    "docs/reference/codes.md": 2450,
    "docs/reference/guards.md": 1350,
    "docs/reference/kinds.md": 1750,
    "docs/reference/metrics.md": 2200,
    "docs/reference/rights.md": 1000,
    "docs/reference/signals.md": 2200,
    "docs/reference/versions.md": 700,
    "docs/tasks/autoscalers.md": 650,
    "docs/tasks/certificates.md": 700,
    "docs/tasks/ci.md": 950,
    "docs/tasks/clouds.md": 600,
    "docs/tasks/coexistence.md": 1350,
    "docs/tasks/gpus.md": 1650,
    "docs/tasks/idle.md": 750,
    "docs/tasks/install.md": 1000,
    "docs/tasks/looking.md": 1500,
    "docs/tasks/migration.md": 850,
    "docs/tasks/moves.md": 650,
    "docs/tasks/notify.md": 950,
    "docs/tasks/operate.md": 1200,
    "docs/tasks/page.md": 950,
    "docs/tasks/quickstart.md": 950,
    "docs/tasks/registration-files.md": 350,
    "docs/tasks/runbooks.md": 1400,
    "docs/tasks/saving.md": 1050,
    "docs/tasks/simulation.md": 900,
    "docs/tasks/troubleshoot.md": 1250,
    "docs/tasks/usage.md": 1250,
    "docs/tasks/users-more.md": 900,
    "docs/tasks/users.md": 900,
    "docs/tasks/workloads.md": 1400,
    "policies/README.md": 4350,
}
"""The words that a page may have: about what it has. A decision has a page, `A_DECISION`."""

A_DECISION = 800
ALL = 70_000
ADMIN, DATA_SCIENTIST = 3000, 900
FIRST_POLICY = (
    ("README.md", ""),
    ("docs/concepts/README.md", "## Off, shadow, warn, enforce"),
    ("docs/tasks/install.md", ""),
    ("docs/tasks/troubleshoot.md", "## The checks"),
)
"""What an admin reads from the first page to a policy in force in a cluster of their own, each up to a heading."""

LONGEST_SENTENCE = 30
GLOSSARY = {
    r"in line": "queued, in the queue",
    r"(?<!log.)(?<!of.)the line": "the queue",
    r"promis(?:es?|ed|ing)": "reserve, guarantee",
    r"borrowers?": "preemptible pod",
    r"holders?(?! \w+/)|who holds|hold(?:s|ing)? (?:\d+ |some |its )?GPUs|GPUs (?:that are |are )?held": "use",
    r"(?:keep|kept|keeps|keeping) (?:the |its |their |no |some )?room": "reserve",
    r"let(?:s|ting)? go": "release",
    r"(?:take|takes|taken|taking|give|gives|given) back": "reclaim",
    r"mend(?:s|ed|ing)?": "fix",
    r"the world": "snapshot",
    r"makes? room": "free room, reclaim",
}
"""Words for which docs/concepts/README.md has another one; in backticks they are what programs print."""

_SPAN = re.compile(r"`[^`]*`")
_TARGET = re.compile(r"\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[^a-z])")
each_page = pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
written = pytest.mark.parametrize(
    "page", [each for each in pages.PAGES if pages.name(each) not in GENERATED], ids=pages.name
)
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


def test_every_page_has_a_limit():
    decisions = {pages.name(page) for page in pages.PAGES if page.parent.name == "adr" and page.name[0] == "0"}
    assert sorted({*map(pages.name, pages.PAGES)} - decisions) == sorted(LIMITS)


@each_page
def test_a_page_stays_inside_its_limit(page):
    assert words(pages.name(page)) <= LIMITS.get(pages.name(page), A_DECISION)


@pytest.mark.parametrize("page", [each for each in pages.PAGES if each.parent.name == "adr" and each.name[0] == "0"])
def test_a_decision_has_its_context_and_its_consequences(page):
    text = page.read_text()
    is_list = "not built" in text.partition("\n")[0]
    assert is_list or all(part in text for part in ("**Context.**", "**Decision", "**Consequences"))


def test_all_pages_stay_inside_the_limit():
    assert sum(words(pages.name(page)) for page in pages.PAGES) <= ALL


def test_an_admin_reads_little_before_a_first_policy():
    assert sum(words(*each) for each in FIRST_POLICY) <= ADMIN


def test_a_data_scientist_reads_little():
    assert words("docs/tasks/users.md") <= DATA_SCIENTIST


@pytest.mark.parametrize("name", [*(name for name, _ in FIRST_POLICY), "docs/tasks/users.md"])
def test_what_both_read_is_walked(name):
    commands = [found.command for found in pages.script(pages.ROOT / name) if isinstance(found, pages.Step)]
    assert name in STAGES or set(commands) <= set(EXCLUDED_COMMANDS)


@written
def test_sentences_are_short(page):
    plain = _TARGET.sub("]", _SPAN.sub("CODE", _DEFINITION.sub("", pages.prose(page))))
    assert [each for each in sentences(plain) if len(each.split()) > LONGEST_SENTENCE] == []


@written
def test_one_word_stands_for_one_thing(page):
    text = _SPAN.sub("", _TARGET.sub("]", _DEFINITION.sub("", pages.prose(page))))
    if page in TABLES:  # generated from the code, which is checked there
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    assert unwanted(text, words=GLOSSARY) == [], "docs/concepts/README.md#words"


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
