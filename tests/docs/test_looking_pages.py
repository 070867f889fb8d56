"""The pages about looking at a cluster print what the commands print."""

from pathlib import Path

import pytest

from tests.docs import pages

CLI = Path(__file__).parents[1] / "cli"
STATUS = CLI / "status" / "golden" / "80-columns.txt"
SHOWN = {
    ("README.md", "$ kubectl fairgate status\n"): STATUS,
    ("docs/looking.md", "$ kubectl fairgate status\n"): STATUS,
    ("docs/looking.md", "$ fairgate explain "): CLI / "explain" / "golden" / "manifest-refused.txt",
    ("docs/looking.md", "$ fairgate policy diff "): CLI / "golden" / "policy-diff.txt",
}


@pytest.mark.parametrize(("page", "asked"), SHOWN)
def test_the_page_shows_what_is_printed(page, asked):
    [shown] = [b.text.partition("\n")[2] for b in pages.blocks(pages.ROOT / page) if b.text.startswith(asked)]
    kept = SHOWN[page, asked]
    printed = kept.read_text().splitlines()
    if kept == STATUS:  # its last line tells what was looked at
        assert shown.splitlines()[:-1] == printed[:-1]
    else:
        assert shown.rstrip() == "\n".join(printed).rstrip()
