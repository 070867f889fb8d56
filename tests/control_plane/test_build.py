"""The build with a Go that is a shell script: caching, leftovers, error messages."""

import fcntl
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.control_plane import build
from tests.control_plane.assets import recipe_folder
from tests.control_plane.versions import (
    ETCD,
    FOR_REST,
    FOR_TEST,
    FOR_TEST_OPERATORS,
    HELM,
    JOBSET,
    KUBERNETES,
    KUEUE,
    TRAINING_OPERATOR,
)

# Writes an executable for each package into what -o names: a file, or a folder when that ends with a slash.
FAKE_GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
[ "$1" = build ] && {
  echo "$@" >> "$(dirname "$0")/calls"
  out="$5"; shift 5
  case "$out" in
    */) for package; do echo built > "$out$(basename "$package")"; done;;
    *) echo built > "$out";;
  esac
  exit 0
}
echo "unexpected: $*" >&2; exit 1
"""
BROKEN_GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
echo "main.go:1: undefined: everything" >&2; exit 1
"""


@pytest.fixture
def fake_go(tmp_path, monkeypatch):
    def install(text: str = FAKE_GO, *, run: str = ""):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "go").write_text(text)
        (folder / "go").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", run)
        return folder / "calls"

    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return install


def test_all_binaries_of_a_recipe_are_built_in_one_call_and_only_once(fake_go, tmp_path):
    calls, said = fake_go(), []
    build.ensure([KUBERNETES], say=said.append, root=tmp_path / "cache")
    build.ensure([KUBERNETES], say=said.append, root=tmp_path / "cache")
    folder = recipe_folder(KUBERNETES, root=tmp_path / "cache")
    assert sorted(path.name for path in folder.iterdir()) == sorted(p.binary for p in KUBERNETES.programs)
    assert len(calls.read_text().splitlines()) == 1
    assert any("ready after" in line for line in said)


def test_a_package_with_another_name_gets_the_name_of_its_binary(fake_go, tmp_path):
    fake_go()
    build.ensure([ETCD], say=[].append, root=tmp_path)
    assert (recipe_folder(ETCD, root=tmp_path) / "etcd").exists()


def test_only_the_missing_binaries_are_built(fake_go, tmp_path):
    calls = fake_go()
    folder = recipe_folder(KUBERNETES, root=tmp_path)
    folder.mkdir(parents=True)
    for program in KUBERNETES.programs[1:]:
        (folder / program.binary).touch()
    build.ensure([KUBERNETES], say=[].append, root=tmp_path)
    assert calls.read_text().strip().endswith("k8s.io/kubernetes/cmd/kube-apiserver")
    assert "kubectl" not in calls.read_text()


def test_a_failed_build_shows_the_output_of_go_and_leaves_no_files(fake_go, tmp_path):
    fake_go(BROKEN_GO)
    with pytest.raises(build.BuildError, match="undefined: everything"):
        build.ensure([ETCD], say=[].append, root=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.fixture
def other_build(tmp_path, monkeypatch):
    """Another process builds etcd, as a worker of the test run "its", until a test ends it."""
    monkeypatch.setattr(build, "LOCK_POLL_SECONDS", 0.01)
    held = (tmp_path / ".lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    print("its", "[1/1] etcd: building", sep="\n", file=held, flush=True)

    def end():
        etcd = recipe_folder(ETCD, root=tmp_path) / "etcd"
        etcd.parent.mkdir()
        etcd.touch()
        held.close()

    yield end
    held.close()


@pytest.mark.parametrize(
    ("run", "want"),
    [
        pytest.param("", 2, id="by hand, it shows the other one's progress"),
        pytest.param("ours", 2, id="and in another test run"),
        pytest.param("its", 0, id="but not in the same one, where the other worker shows it"),
    ],
)
def test_a_second_build_waits_for_the_first_and_builds_nothing(fake_go, other_build, tmp_path, run, want):
    calls, said = fake_go(run=run), []
    waiting = threading.Thread(target=build.ensure, args=([ETCD],), kwargs={"say": said.append, "root": tmp_path})
    waiting.start()
    deadline = time.monotonic() + 30
    while len(said) < want:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    other_build()
    waiting.join(30)
    assert said == [f"another build holds {tmp_path / '.lock'}: waiting for it", "[1/1] etcd: building"][:want]
    assert not calls.exists()


def test_progress_is_shown_before_each_recipe(fake_go, tmp_path):
    fake_go()
    said = []
    build.ensure([ETCD, KUBERNETES], say=said.append, root=tmp_path)
    assert said[0] == f"building etcd 3.7.3, kubernetes 1.37.0 into {tmp_path}: once, about 9 min on two cores"
    assert said[1] == "[1/2] etcd 3.7.3: building for 0 s, 0 s in all, about 9 min left"
    assert said[3].startswith("[2/2] kubernetes 1.37.0: building for 0 s")


def test_an_operator_with_another_checksum_is_refused(fake_go, tmp_path):
    fake_go(FAKE_GO.replace('echo "unexpected', 'echo \'{"Sum": "h1:evil", "Dir": "/"}\'; exit 0; echo "'))
    with pytest.raises(build.BuildError, match="checksum h1:evil, pinned is h1:"):
        build.ensure([TRAINING_OPERATOR], say=[].append, root=tmp_path)


def test_a_module_is_found_where_go_keeps_it(fake_go, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answer = f'{{"Sum": "{KUEUE.upstream.checksum}", "Dir": "{tmp_path}/kueue"}}'
    fake_go(FAKE_GO.replace('echo "unexpected', f"echo '{answer}'; exit 0; echo \""))
    assert build.module_folder(KUEUE) == tmp_path / "kueue"


def test_a_recipe_with_a_gomod_is_not_a_module():
    with pytest.raises(build.BuildError, match="etcd is no module of its own"):
        build.module_folder(ETCD)


def test_an_operator_is_built_from_an_edited_copy_and_keeps_its_manifests(fake_go, tmp_path):
    module = tmp_path / "module"
    for name, text in {"pkg/cert/cert.go": TRAINING_OPERATOR.upstream.edits[0].old, "manifests/a.yaml": "a"}.items():
        (module / name).parent.mkdir(parents=True)
        (module / name).write_text(text)
        (module / name).chmod(0o444)  # as in Go's module cache
    answer = f'{{"Sum": "{TRAINING_OPERATOR.upstream.checksum}", "Dir": "{module}"}}'
    calls = fake_go(FAKE_GO.replace('echo "unexpected', f"echo '{answer}'; exit 0; echo \""))
    build.ensure([TRAINING_OPERATOR], say=[].append, root=tmp_path / "cache")
    folder = recipe_folder(TRAINING_OPERATOR, root=tmp_path / "cache")
    assert (folder / "training-operator").exists()
    assert (folder / "manifests" / "a.yaml").read_text() == "a"
    assert "./cmd/training-operator.v1" in calls.read_text()
    assert (module / "pkg/cert/cert.go").read_text() == TRAINING_OPERATOR.upstream.edits[0].old


@pytest.mark.parametrize(
    ("missing", "option"), [(ETCD, ""), (HELM, " --rest"), (JOBSET, " --operators")], ids=lambda value: str(value)[:8]
)
def test_a_missing_binary_is_an_error_that_says_how_to_build_it(tmp_path, monkeypatch, missing, option):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(build.BuildError, match=rf"python -m tests\.control_plane\.build{option}$"):
        build.binary_path(missing, missing.programs[0].binary)


def test_an_unknown_name_cannot_be_built(capsys):
    with pytest.raises(SystemExit):
        build.main(["etcd", "etdc"])
    assert "nothing is called etdc" in capsys.readouterr().err


SLOW_GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.26.8; exit 0; }
echo started > "$(dirname "$0")/started"
exec sleep 300
"""


def test_a_build_with_a_bound_ends_what_runs_and_says_what_is_missing(fake_go, tmp_path, monkeypatch, capsys):
    folder = fake_go(SLOW_GO).parent
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.main(["etcd", "helm", "--minutes", "0.02"]) == 0
    assert (folder / "started").exists()
    assert capsys.readouterr().err.splitlines()[-1] == "not built within 0.02 min: etcd, helm"
    assert [path.name for path in (tmp_path / "fairgate" / "control-plane").iterdir()] == [".lock"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_no_time_builds_nothing(fake_go, tmp_path, monkeypatch, capsys):
    calls = fake_go()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.main(["etcd", "--minutes", "0"]) == 0
    assert not calls.exists()
    assert "not built within 0 min: etcd" in capsys.readouterr().err


@pytest.mark.usefixtures("other_build")
def test_a_bound_also_ends_the_wait_for_another_build(fake_go, tmp_path):
    calls = fake_go()
    with pytest.raises(build.OutOfTimeError), build.at_most(0.01):
        build.ensure([ETCD], say=[].append, root=tmp_path)
    assert not calls.exists()


def test_a_build_with_a_bound_that_fails_has_failed(fake_go, tmp_path, monkeypatch, capsys):
    fake_go(BROKEN_GO)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.main(["etcd", "--minutes", "5"]) == 1
    assert "undefined: everything" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], FOR_TEST),
        (["--rest"], (*FOR_TEST, *FOR_REST)),
        (["--operators"], dict.fromkeys((*FOR_TEST, *FOR_TEST_OPERATORS))),
    ],
    ids=["for make test", "for the rest", "for operators"],
)
def test_without_names_it_builds_what_the_tests_need(monkeypatch, arguments, want):
    built = []
    monkeypatch.setattr(build, "ensure", built.extend)
    monkeypatch.setattr(build, "binary_path", lambda *_: "there")
    assert build.main(arguments) == 0
    assert built == [*want]


def test_a_build_that_gives_way_has_the_lowest_priority():
    script = "from tests.control_plane.build import give_way; import os; give_way(); print(os.nice(0))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=build.GOMOD.parents[2], capture_output=True, text=True, check=True)
    assert done.stdout == "19\n"
