"""What is promised about versions of Kubernetes is what is tested, in each place that promises it."""

import re

import yaml

from tests.control_plane.minors import NEWEST, OLDEST
from tests.control_plane.versions import MINORS
from tests.docs import pages
from webhook.kube.objects.keys import OLDEST as REQUIRED

PAGE = pages.ROOT / "docs" / "reference" / "versions.md"


def in_table() -> dict[str, str]:
    """The patch of each minor in the table of what is tested, newest first."""
    return dict(re.findall(r"^\| (\d+\.\d+) \| (\d+\.\d+\.\d+) \|", PAGE.read_text(), flags=re.MULTILINE))


def test_the_table_has_the_minors_with_a_recipe_or_says_that_they_were_not_run():
    not_run = re.findall(r"^- Not run yet: (\d+\.\d+) \((\d+\.\d+\.\d+)\)", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted([*in_table().items(), *not_run]) == sorted((minor, it.version) for minor, it in MINORS.items())
    assert {OLDEST, NEWEST} <= in_table().keys()


def test_the_oldest_minor_that_is_tested_is_required_everywhere():
    chart = yaml.safe_load((pages.ROOT / "charts" / "fairgate" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"
    assert tuple(map(int, OLDEST.split("."))) == REQUIRED
    for page in ("README.md", "docs/reference/versions.md", "docs/tasks/install.md", "docs/tasks/quickstart.md"):
        text = " ".join((pages.ROOT / page).read_text().replace("*", "").split())
        assert re.search(rf"Kubernetes( must be)? {re.escape(OLDEST)} or newer", text), page


def test_the_readme_names_all_of_them():
    newest, *others = in_table()
    named = f"{', '.join(reversed(others))} and {newest}"
    assert named in " ".join((pages.ROOT / "README.md").read_text().split())


def test_each_difference_is_shown_by_a_test_that_exists():
    rows = [line for line in PAGE.read_text().partition("## What differs")[2].splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for row in rows:
        shown = row.rstrip("| ").rpartition(" | ")[2]
        assert "](../../tests/" in shown or shown == "the same", row
