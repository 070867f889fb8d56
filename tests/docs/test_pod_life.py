"""The table of a pod's life on the page of concepts is that of the code."""

from pathlib import Path

from webhook.core.life.pod_life import TERMS

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"


def yes(value):
    return "yes" if value else "no"


def test_the_page_has_the_table_of_the_code():
    rows = [
        f"| {stage} | {yes(terms.is_charged)} | {terms.room} | {terms.removal} | {yes(terms.is_entitled)} |"
        for stage, terms in TERMS.items()
    ]
    section = PAGE.read_text().split("## A pod's life")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| ")][1:] == rows
