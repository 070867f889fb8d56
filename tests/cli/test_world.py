"""`fairgate world`: files that load as the same world, without names if pseudonyms are requested."""

import json

import pytest
from click.testing import CliRunner

from tests.cli import sample_world
from webhook.cli.main import main


@pytest.fixture
def run(tmp_path):
    sample_world.write(tmp_path)

    def call(command, *words, world="world.json"):
        options = ["--policy", str(tmp_path / "policy.yaml"), "--world", str(tmp_path / world)]
        return CliRunner().invoke(main, [command, *options, *words])

    return call


def status(run, world):
    return json.loads(run("status", "-o", "json", world=world).stdout)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_saved_world_shows_the_same(run, tmp_path, form):
    (tmp_path / "saved").write_text(run("world", "-o", form).stdout)
    assert status(run, "saved") == status(run, "world.json")
    (tmp_path / "again").write_text(run("world", "-o", form, world="saved").stdout)
    assert (tmp_path / "again").read_text() == (tmp_path / "saved").read_text()


def test_only_fields_that_decisions_read_are_saved(run, tmp_path):
    found = sample_world.objects()
    pod = next(each for each in found if each["kind"] == "Pod")
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "hunter2"}]
    pod["metadata"]["annotations"] = {"note": "hunter2"}
    found.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "hunter2"}})
    sample_world.write(tmp_path, found)
    assert "hunter2" not in run("world").stdout


def test_finished_pods_are_left_out(run, tmp_path):
    found = sample_world.objects()
    found[-1]["status"] = {"phase": "Succeeded"}
    sample_world.write(tmp_path, found)
    assert found[-1]["metadata"]["name"] not in run("world").stdout


def test_pseudonyms_hide_all_names_and_keep_the_status(run, tmp_path):
    names = tmp_path / "names.json"
    (tmp_path / "saved").write_text(run("world", "--pseudonyms", "--names", str(names)).stdout)
    text = (tmp_path / "saved").read_text()
    given = {row["name"]: row["pseudonym"] for row in json.loads(names.read_text())}
    assert not [name for name in given if name in {"gpu-1", "train-0", "train", "llm"} and f" {name}\n" in text]
    before, after = status(run, "world.json"), status(run, "saved")
    assert after["free"] == before["free"]
    for was, now in zip(before["teams"], after["teams"], strict=True):
        assert {**was, "holders": None} == {**now, "holders": None}
        assert [holder["gpus"] for holder in was["holders"]] == [holder["gpus"] for holder in now["holders"]]
    assert [given[node["name"]] for node in before["nodes"] if node["name"] in given]


def test_names_needs_pseudonyms(run, tmp_path):
    assert run("world", "--names", str(tmp_path / "n")).exit_code == 2


def test_an_unwritable_names_file_is_reported(run, tmp_path):
    result = run("world", "--pseudonyms", "--names", str(tmp_path / "gone" / "names.json"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_an_unreadable_world_exits_with_2(run):
    result = run("world", world="gone.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.json: cannot be read: No such file or directory" in result.stderr
