from pathlib import Path

import pytest

from tests.control_plane.toolchain import ToolchainError, find_go, go_environment, is_new_enough


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("go1.26.0", True),
        ("go1.26", True),
        ("go1.25.9", False),
        ("go1.27rc1", True),
        ("go1.26.8 X:jsonv2", True),
        ("devel go1.28-abcdef", True),
        ("", False),
        ("gccgo", False),
    ],
)
def test_new_enough(text, want):
    assert is_new_enough(text) is want


def fake_find(tmp_path, *, on_path, versions, said=None):
    installed = tmp_path / "wheel" / "go"
    return find_go(
        tmp_path,
        say=(said if said is not None else []).append,
        which=lambda _: on_path,
        version_of=lambda go: versions.get(str(go), ""),
        install=lambda _: installed,
    )


def test_go_on_path_is_used_when_it_is_new_enough(tmp_path):
    assert fake_find(tmp_path, on_path="/bin/go", versions={"/bin/go": "go1.26.8"}) == Path("/bin/go")


@pytest.mark.parametrize("on_path", [None, "/bin/go"], ids=["no Go on PATH", "too old a Go on PATH"])
def test_the_wheel_is_used_otherwise_with_a_message(tmp_path, on_path):
    said = []
    installed = tmp_path / "wheel" / "go"
    versions = {"/bin/go": "go1.24.1", str(installed): "go1.26.6"}
    assert fake_find(tmp_path, on_path=on_path, versions=versions, said=said) == installed
    assert "1.26.0" in said[0]
    assert "PyPI" in said[0]


def test_a_wheel_that_does_not_run_is_an_error_with_advice(tmp_path):
    with pytest.raises(ToolchainError, match=r"install Go 1\.26\.0 or newer"):
        fake_find(tmp_path, on_path=None, versions={})


def test_settings_for_other_projects_do_not_reach_the_build():
    environment = go_environment({"HOME": "/h", "GOOS": "plan9", "GOFLAGS": "-mod=vendor", "GOWORK": "/w"})
    assert environment["HOME"] == "/h"
    assert "GOOS" not in environment
    assert "-mod=vendor" not in environment["GOFLAGS"]
    assert environment["GOWORK"] == "off"
