"""The table of a pod's life on the page of reclaim is that of the code."""

from tests.docs import pages
from webhook.core.model.pod import TERMS


def yes(value):
    return "yes" if value else "no"


def test_the_page_has_the_table_of_the_code():
    want = [
        [stage, yes(terms.is_charged), str(terms.room), str(terms.removal), yes(terms.is_entitled)]
        for stage, terms in TERMS.items()
    ]
    assert pages.table(pages.ROOT / "docs" / "concepts" / "reclaim.md", first="stage") == want
