"""The runs on other minors of Kubernetes: what is left out and why, which minor the tests see, and the status."""

import pytest

from tests.ci import versions
from tests.control_plane import minors
from tests.control_plane.assets import recipe_folder
from tests.control_plane.versions import MINORS, NEWEST, OTHER_MINORS, under_test

pytestmark = pytest.mark.slow

MINOR = f"""
import os
def test_minor(): assert os.environ["KUBERNETES"] == "{minors.OLDEST}"
"""


@pytest.fixture
def built(tmp_path, monkeypatch):
    """An empty cache, into which the binaries of a minor are put."""

    def built(minor):
        folder = recipe_folder(MINORS[minor])
        folder.mkdir(parents=True)
        for program in MINORS[minor].programs:
            (folder / program.binary).touch()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return built


@pytest.fixture
def testing(tmp_path, monkeypatch):
    """Test these files instead of the scenarios."""

    def testing(text):
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  cluster: as here\n")
        monkeypatch.setattr(versions, "ROOT", tmp_path)
        monkeypatch.setattr(versions, "FOLDERS", ("test_it.py",))
        monkeypatch.setattr(versions, "MARKS", "not long")
        monkeypatch.setattr(versions, "OPTIONS", ("-p", "no:cacheprovider", f"--rootdir={tmp_path}"))

    return testing


def test_with_a_bound_on_the_time_nothing_is_built(built, capsys):
    built("1.36")
    assert versions.main(["--minutes", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "left out, as it is not built: Kubernetes 1.30" in lines
    assert "left out, as the time is over: Kubernetes 1.36" in lines
    assert len(lines) == len(OTHER_MINORS)


@pytest.mark.parametrize(
    ("text", "want", "status"),
    [(MINOR, "1 passed", 0), (f"{MINOR}\ndef test_broken(): assert False", "1 failed, 1 passed", 1)],
    ids=["passed", "failed"],
)
def test_the_tests_know_their_minor_and_their_result_is_said(built, testing, capsys, *, text, want, status):
    built(minors.OLDEST)
    testing(text)
    assert versions.main(["--minutes", "30", minors.OLDEST]) == status
    assert f"Kubernetes {MINORS[minors.OLDEST].version}: {want} in " in capsys.readouterr().out.splitlines()[-1]


def test_an_unknown_minor_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        versions.main(["1.29"])
    assert ended.value.code == 2
    assert "no minor is called 1.29" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"KUBERNETES=1.29: expected one of 1.30, .*1.37"):
        under_test({"KUBERNETES": "1.29"})
    assert (under_test({}), under_test({"KUBERNETES": "1.30"})) == (NEWEST, "1.30")


def test_what_is_left_out_exists_and_has_a_reason():
    for file, why in versions.LEFT_OUT.items():
        assert (versions.ROOT / file).is_file(), file
        assert why


def test_minors_are_compared_by_number():
    assert minors.at_least("1.9", than="1.30")
    assert not minors.at_least("1.31", than="1.30")
    assert list(MINORS) == sorted(MINORS, key=lambda minor: tuple(map(int, minor.split("."))))
