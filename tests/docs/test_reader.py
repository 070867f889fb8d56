"""The command runner itself: which outputs count as equal, and that it finds errors of a page."""

import pytest

from tests.docs import pages
from tests.docs.alike import is_alike
from tests.docs.walk import Reader

ALIKE = {
    "the same": ("a b\n", "a b\n"),
    "ages": ("train   2s\n", "train   1m12s\n"),
    "made-up names": ("pod/train-gpf7l created\n", "pod/train-x8zvw created\n"),
    "columns": ("NAME     AGE\n", "NAME  AGE\n"),
    "lines left out": ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n"),
    "a part left out": ("used … GPUs\n", "used 17 GPUs\n"),
}
DIFFERENT = {
    "a number": ("used 16\n", "used 17\n"),
    "the hash of a policy": ("policy fc52e287fcdd\n", "policy c6daa97ee22c\n"),
    "a name": ("pod/train created\n", "pod/serve created\n"),
    "a line more": ("first\n", "first\nsecond\n"),
    "a line less": ("first\nsecond\n", "first\n"),
    "nothing": ("first\n", ""),
}


@pytest.mark.parametrize("case", ALIKE)
def test_runs_may_differ_in(case):
    assert is_alike(*ALIKE[case])


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_page_may_not_differ_in(case):
    assert not is_alike(*DIFFERENT[case])


def follow(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with Reader(tmp_path) as reader:
        reader.follow(page)


PAGE = """A file, `made/by/reader.yaml`:
```yaml
a: 1
```
```console
$ cat made/by/reader.yaml
a: {shown}
$ {command} made/by/reader.yaml
```
"""


def test_files_are_written_and_commands_run_in_order(tmp_path):
    follow(tmp_path, PAGE.format(shown="1", command="rm"))
    assert not (tmp_path / "work" / "made" / "by" / "reader.yaml").exists()


@pytest.mark.parametrize(
    ("shown", "command"), [("2", "rm"), ("1", "rmdir")], ids=["another output", "a command that fails"]
)
def test_errors_of_a_page_are_found(tmp_path, monkeypatch, shown, command):
    monkeypatch.delenv("GOLDEN", raising=False)
    with pytest.raises(AssertionError, match=r"ended with"):
        follow(tmp_path, PAGE.format(shown=shown, command=command))


def test_continued_lines_comments_and_sessions_are_parsed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\n# a comment\none   # why\ntwo \\\n    --more\n```\n```console\n$ three\nout\n$ four\n```\n")
    steps = list(pages.script(page))
    assert [(step.command, step.shown) for step in steps] == [
        ("one", ""),
        ("two --more", ""),
        ("three", "out\n"),
        ("four", ""),
    ]
