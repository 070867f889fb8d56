"""`fairgate status --watch` follows a cluster."""

import time

import pytest

from tests.cli import sample_world
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import until, write_kubeconfig
from webhook.cli.status.run import Follower
from webhook.cli.world_source import read_once, watch_world
from webhook.core.model.pod import Stage
from webhook.core.model.policy import Policy
from webhook.files import InputError
from webhook.kube.nodes.holds import rfc3339
from webhook.server.settings import FileWorld


async def test_a_watched_world_is_updated_and_not_stale(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            assert (len(watched.world.fleet), watched.why_stale()) == (1, None)
            api.put("/api/v1/nodes", "n1", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
            await until(lambda: len(watched.world.fleet) == 2)


async def test_a_pod_that_ends_in_time_is_not_overdue_in_a_watched_world(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        going = sample_world.pod("going", namespace="vision", gpus=4, node="n0")
        ends = {"deletionTimestamp": rfc3339(int(time.time()) + 600), "deletionGracePeriodSeconds": 600}
        api.put("/api/v1/pods", "going", namespace="vision", metadata=going["metadata"] | ends, spec=going["spec"])
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            [pod] = watched.world.pods()
            assert watched.world.stages.of(pod.uid) is Stage.ENDING


async def test_without_the_right_to_watch_autoscalers_the_rest_is_watched_and_a_note_says_so(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        api.faults["list /apis/autoscaling/v2/horizontalpodautoscalers"].extend([Answer(403)] * 50)
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            assert len(watched.world.fleet) == 1
            assert watched.coverage.notes() == ["you may not list horizontalpodautoscalers"]
            assert watched.coverage.has_names


@pytest.fixture
def follower(tmp_path):
    sample_world.write(tmp_path)
    source = FileWorld(tmp_path / "world.json")
    return Follower(source, lambda: read_once(source, Policy(), keep_nodes=True))


def names(reading):
    return sorted(node.name for node in reading.view.world.fleet.nodes())


def test_a_file_that_changes_is_read_once_it_is_left_alone(follower, tmp_path):
    before = names(follower.look())
    sample_world.write(tmp_path, sample_world.objects()[:1])
    during = follower.look()
    assert (names(during), during.why_stale) == (before, "its file is being written")
    after = follower.look()
    assert (names(after), after.why_stale) == (["gpu-1"], None)
    assert follower.look().view is after.view, "an unchanged file is not read again"


HALVES = {
    "half of it": (lambda text: text[: len(text) // 2], "world.json"),
    "nothing yet": (lambda _text: "", "its file is being written"),
    "no file": (None, "world.json: cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("half", HALVES)
def test_a_half_written_file_does_not_replace_what_was_read(follower, tmp_path, half):
    file = tmp_path / "world.json"
    whole, (cut, why) = file.read_text(), HALVES[half]
    before = names(follower.look())
    if cut is None:
        file.unlink()
    else:
        file.write_text(cut(whole))
    for _ in range(3):
        during = follower.look()
    assert names(during) == before
    assert why in during.why_stale
    file.write_text(whole)
    found = [follower.look(), follower.look()][-1]
    assert (names(found), found.why_stale) == (before, None)


def test_what_could_never_be_read_is_an_error(follower, tmp_path):
    (tmp_path / "world.json").write_text("[")
    with pytest.raises(InputError, match=r"world\.json"):
        follower.look()


def test_what_is_shown_of_before_gets_older(follower, monkeypatch):
    first = follower.look().origin.age_seconds
    now = time.time()
    monkeypatch.setattr("webhook.cli.status.run.time.time", lambda: now + 600)
    assert follower.look().origin.age_seconds == pytest.approx(first + 600, abs=60)
