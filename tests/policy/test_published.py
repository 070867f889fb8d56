"""The published policy loads as the one that is in force, and has no comment in it."""

from pathlib import Path

import pytest

from webhook.policy.build import published
from webhook.policy.documents import read_files
from webhook.policy.watch import load, parse

POLICIES = Path(__file__).parents[2] / "policies"
FILES = [POLICIES / "default", *sorted((POLICIES / "examples").glob("*.yaml"))]
HEAD = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"


def reloaded(text):
    return parse({"published": text.encode()}, origin="published")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_the_same_policy(path):
    assert reloaded(published(read_files(path))) == load(path)


@pytest.mark.parametrize("value", ["off", "no", "y", "1e3", "0x1f", "null", "true", "01", "1.5", "1_000", "0b1", ""])
def test_text_stays_text_in_yaml_1_1(value):
    text = f"{HEAD}pools: [{{name: p, nodeSelector: {{key: '{value}'}}}}]\n"
    assert reloaded(published({"a": text.encode()})) == reloaded(text)


def test_comments_are_removed():
    text = f"# Bob must not know\n{HEAD}teams: [{{name: a, namespaces: [a]}}]  # neither must Eve\n"
    assert "know" not in published({"a": text.encode()})


def test_what_aliases_repeat_is_written_out():
    text = f"{HEAD}teams: [{{name: a, namespaces: &n [a, b]}}]\nexempt: {{namespaces: *n}}\n"
    assert "*" not in published({"a": text.encode()})
    assert published({"a": text.encode()}).count("- a\n") == 2
