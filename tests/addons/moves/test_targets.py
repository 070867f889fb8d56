"""Which pods the evictor moves others for: in line, gangs, the largest one in a window; reclaim goes first."""

from dataclasses import replace

import pytest

from tests.addons.moves.moving import held, job_pod, place, rules, scatter, turns, wide
from tests.addons.moves.test_mover import hold_of, messages
from tests.evictor.support.line import in_line
from tests.evictor.support.stage import PODS
from webhook.core.model.policy import Enforcement
from webhook.core.model.policy_addons import Window
from webhook.core.model.reasons import Code, Reason
from webhook.kube.pod.waiting import Waits, waiting_annotations

WHOLE_DAY = Window(0, 24 * 60)


def waits_for_room(stage, name="line", *, gpus=4):
    """A pod in line that lacks nothing but room, by what the leader of the webhook wrote on it."""
    uid = in_line(stage, name, gpus=gpus)
    pod = stage.api.objects[PODS][f"team-b/{name}"]
    facts = waiting_annotations(Waits(Reason(Code.WAITS_FOR_ROOM, "no node has room")))
    metadata = {**pod["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}
    metadata["annotations"] = {**metadata.get("annotations", {}), **facts}
    stage.api.keep(PODS, f"team-b/{name}", {**pod, "metadata": metadata})
    return uid


async def test_a_pod_in_line_gets_a_place_that_it_starts_in(stage):
    scatter(stage, "n0", "n1")
    uid = waits_for_room(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        [kept] = hold_of(stage, "n0")["places"]
        assert (kept["key"], kept["team"]) == (uid, "team-b")
        pod = stage.api.objects[PODS]["team-b/line"]
        spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
        labels = {"fairgate.dev/team": "team-b", "fairgate.dev/tier": "preemptible"}
        stage.api.keep(PODS, "team-b/line", {**pod, "spec": spec, "metadata": {**pod["metadata"], "labels": labels}})
        await stage.until(lambda: stage.locked().get("n0") == [uid])


@pytest.mark.parametrize(("allowed", "want"), [(1, 0), (2, 2)])
async def test_a_gang_gets_room_for_all_of_its_pods_or_none(stage, allowed, want):
    scatter(stage, "n0", "n1", "n2", fixed=0)
    for name in ("ring-0", "ring-1"):
        wide(stage, name, gang={"kueue.x-k8s.io/pod-group-name": "ring"}, created="2020-01-01T00:00:00Z")
    async with stage.leader(rules(moves_per_hour=allowed)):
        if want:
            await stage.until(lambda: stage.real_evictions() == want)
            made_for = {uid for uids in stage.locked().values() for uid in uids}
            assert len(made_for) == 2
        await turns(60)
        assert stage.real_evictions() == want
        assert bool(messages(stage, "CannotMakeRoom")) is not bool(want)


async def test_in_its_window_the_largest_pod_grows_without_anyone_waiting(stage):
    scatter(stage, "n0", "n1", saved=1)
    async with stage.leader(rules(on_demand=False, window=WHOLE_DAY)):
        await stage.until(lambda: stage.real_evictions() == 1)
        again = job_pod(stage, "j-n0-again", job="j-n0")
        await stage.until(lambda: stage.locked() == {"n1": [again]})
        place(stage, "j-n0-again", "n1", team="team-a")
        await stage.until(lambda: held(stage) == {})
        await turns(60)
        assert stage.real_evictions() == 1


async def test_in_an_open_window_no_pods_are_judged_while_a_whole_node_is_free(stage):
    scatter(stage, "n0", "n1")
    stage.node("n2")
    async with stage.leader(rules(on_demand=False, window=WHOLE_DAY)):
        await turns(60)
        read = [each for each in stage.api.asked if each.verb == "get" and each.path.endswith("/pods/j-n0")]
        assert (read, stage.real_evictions()) == ([], 0)
        stage.pod("taken", "team-a", "guaranteed", gpus=1, node="n2")
        await stage.until(lambda: stage.real_evictions() == 1)


async def test_outside_of_its_window_nothing_moves(stage):
    scatter(stage, "n0", "n1")
    now = int(stage.now()) // 60 % (24 * 60)
    later = Window((now + 60) % (24 * 60), (now + 120) % (24 * 60))
    async with stage.leader(rules(on_demand=False, window=later)):
        await turns(60)
        assert stage.real_evictions() == 0


async def test_a_guaranteed_pod_takes_borrowed_gpus_back_and_nothing_moves_for_it(stage):
    scatter(stage, "n0", "n1")
    wide(stage, tier="guaranteed")
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        assert messages(stage, "MakingRoom") == []
        assert messages(stage, "Reclaiming") != []


async def test_a_plan_that_evicted_nothing_yet_gives_way_to_reclaim(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(notice_seconds=60)):
        await stage.until(lambda: set(held(stage)) == {"n0", "n1"})
        stage.asker("owner", gpus=3)
        await stage.until(lambda: held(stage) == {})
        stopped = stage.metrics.registry.get_sample_value
        assert stopped("fairgate_moves_stopped_total", {"reason": "ReclaimFirst"}) == 1.0
        place(stage, "owner", "n0")
        await turns(60)
        assert stage.real_evictions() == 0


async def test_two_pods_of_one_controller_get_a_place_each(stage):
    scatter(stage, "n0", "n1", "n2", job="both", fixed=1)
    job_pod(stage, "j-more", on="n0", job="both")
    wide(stage)
    async with stage.leader(rules(moves_per_workload=2)):
        await stage.until(lambda: stage.real_evictions() >= 1)
        gone = 4 - sum(name.startswith("j-") for name in stage.names())
        again = {job_pod(stage, f"again-{number}", job="both") for number in range(gone)}
        await stage.until(lambda: {uid for uids in stage.locked().values() for uid in uids} >= again)
        assert all(len(uids) == len(set(uids)) for uids in stage.locked().values())


async def test_more_work_than_policy_allows_is_not_done_again(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(lost_seconds_per_gpu=1)):
        await stage.until(lambda: any("than policy allows" in text for text in messages(stage, "CannotMakeRoom")))
        assert stage.real_evictions() == 0


async def test_without_enforcement_nothing_moves(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(replace(rules(), enforce=Enforcement.SHADOW)):
        await turns(60)
        assert (stage.real_evictions(), held(stage)) == (0, {})
