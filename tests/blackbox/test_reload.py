"""Edits of the policy folder are in force within two seconds; an invalid one is reported and not applied.

These tests run in order and build on each other: each edit takes a second to be seen, and none is undone in between.
"""

import os

import pytest

from tests.blackbox.api import Api
from tests.blackbox.objects import FOUR_NODES, TEAM, pod
from tests.blackbox.server import policy_text, serving, write_policy


def team(limit, *, guaranteed=0):
    return {"teams": [{"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": guaranteed, "limit": limit}}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("fairgate"), policy=team(4), world=FOUR_NODES) as running:
        yield running


@pytest.fixture
def folder(server):
    return server.folder / "policy"


def passes(server, gpus):
    return Api(server).create(pod("probe", "team-a", gpus=gpus), dry_run=True).is_allowed


def remark(server):
    """The readiness condition of the policy."""
    readiness = server.ready()
    assert readiness["ready"]
    assert readiness["conditions"]["policy"]["ok"]
    return readiness["conditions"]["policy"]["why"]


def assert_eight(server):
    """Whether the last valid policy is in force."""
    assert passes(server, 8)
    assert not passes(server, 9)


def metric(server, name):
    ((_, value),) = server.samples(name)
    return value


def reloads(server, result):
    (value,) = (v for labels, v in server.samples("fairgate_policy_reloads_total") if labels["result"] == result)
    return value


def test_an_edit_is_in_force_within_two_seconds(server, folder):
    assert passes(server, 4)
    assert not passes(server, 5)
    before, loads = remark(server), reloads(server, "success")
    write_policy(folder, team(8))
    server.wait_until(lambda: passes(server, 8))
    assert not passes(server, 9)
    assert remark(server) != before
    assert reloads(server, "success") == loads + 1
    assert server.lines("policy loaded")[-1]["teams"] == 1


def test_an_invalid_edit_is_reported_everywhere_and_not_applied(server, folder):
    before, failures = remark(server), reloads(server, "failure")
    (folder / "policy.yaml").write_text(policy_text(team(9)).replace("limit: 9", "limit: many"))
    server.wait_until(lambda: "a broken edit was ignored" in remark(server))
    assert before.removeprefix("policy ") in remark(server)
    assert "policy.yaml:9: teams[0].gpus.limit: expected unlimited or GPUs such as 8" in remark(server)
    assert reloads(server, "failure") == failures + 1
    assert metric(server, "fairgate_policy_last_reload_successful") == 0
    line = server.lines("policy edit refused")[-1]
    assert line["level"] == "error"
    assert "teams[0].gpus.limit" in line["problems"][0]
    assert_eight(server)


@pytest.mark.parametrize(
    ("breaking", "want"),
    [
        (lambda folder: (folder / "policy.yaml").write_text("[" * 200_000), "nested more than"),
        (lambda folder: (folder / "policy.yaml").unlink(), "no policy files"),
        (lambda folder: os.mkfifo(folder / "queue.yaml"), "not a regular file"),
        (lambda folder: folder.rename(folder.with_name("elsewhere")), "No such file or directory"),
    ],
    ids=["deep", "emptied", "a FIFO", "gone"],
)
def test_the_policy_survives_every_change_of_the_files(server, folder, breaking, want):
    breaking(folder)
    server.wait_until(lambda: "a broken edit was ignored" in remark(server) and want in remark(server))
    assert_eight(server)


def test_a_valid_edit_clears_the_problem(server, folder):
    assert "broken" in remark(server)
    write_policy(folder, team(6))
    server.wait_until(lambda: not passes(server, 7))
    assert passes(server, 6)
    assert "broken" not in remark(server)
    assert metric(server, "fairgate_policy_last_reload_successful") == 1


def test_pods_are_decided_by_the_new_policy(server, folder):
    """Running pods are charged again by the new policy, pods being created get a 429."""
    api = Api(server)
    assert api.create(pod("p", "team-a", gpus=4)).is_allowed
    assert server.all_charged() == {("a", "preemptible"): 4}
    advised = api.mutate(pod("q", "team-a", gpus=1)).manifest
    write_policy(folder, {"teams": [{"name": "b", "namespaces": ["team-*"], "gpus": {"limit": 5}}]})
    server.wait_until(lambda: not passes(server, 2))
    assert server.all_charged() == {("b", "preemptible"): 4}
    lost = api.validate(advised)
    assert lost.status["code"] == 429
    assert "the policy changed while the pod was being created" in lost.status["message"]
    assert api.create(pod("q", "team-a", gpus=1)).labels[TEAM] == "b"
    assert not passes(server, 1)


def test_a_config_map_is_swapped_by_its_symlink(tmp_path):
    """As the kubelet does it: files link into ..data, a link that is replaced by one to a new folder."""
    mount = tmp_path / "mount"

    def generation(number, limit):
        write_policy(mount / f"..{number}", team(limit))
        (mount / "..data_tmp").symlink_to(f"..{number}")
        (mount / "..data_tmp").rename(mount / "..data")

    generation("2026_01", 4)
    (mount / "policy.yaml").symlink_to("..data/policy.yaml")
    with serving(tmp_path, policy=mount, world=FOUR_NODES) as server:
        assert passes(server, 4)
        assert not passes(server, 5)
        generation("2026_02", 7)
        server.wait_until(lambda: passes(server, 7))
        assert not passes(server, 8)
        assert "broken" not in remark(server)
        assert reloads(server, "failure") == 0
