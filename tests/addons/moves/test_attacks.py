"""What a namespace admin might try with moves: others' pods moved for nothing, own ones without end, others' places."""

from tests.addons.moves.moving import held, job_pod, rules, scatter, turns, wide
from tests.addons.moves.test_mover import hold_of, messages
from tests.evictor.support.stage import PODS
from webhook.addons.moves.live import OF_A_TEAM

FUTURE = 4_000_000_000


async def test_pods_that_come_and_go_have_no_more_moved_than_policy_allows(stage):
    scatter(stage, "n0", "n1", fixed=0)
    async with stage.leader(rules(moves_per_hour=3, moves_per_workload=99)):
        for turn in range(12):
            wide(stage, f"wide-{turn}")
            await turns(30)
            stage.api.delete(PODS, f"wide-{turn}", namespace="team-b")
            for node in ("n0", "n1"):
                if f"j-{node}" not in stage.names():
                    job_pod(stage, f"j-{node}", on=node)
            await turns(100)
        assert 1 <= stage.real_evictions() <= 3


async def test_room_that_is_not_used_is_not_made_again_soon(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(moves_per_hour=99, moves_per_workload=99)):
        await stage.until(lambda: stage.real_evictions() == 1)
        job_pod(stage, "j-n0-again", job="j-n0", on="n1")
        await stage.until(lambda: held(stage) == {}, seconds=400)
        job_pod(stage, "back", job="j-n0", on="n0")
        stage.api.delete(PODS, "j-n0-again", namespace="team-a")
        await turns(300)
        assert stage.real_evictions() == 1


async def test_pods_that_never_come_back_are_not_moved_again(stage):
    scatter(stage, "n0", "n1", "n2", job="forged", **{"fairgate.dev/movable": "true"})
    async with stage.leader(rules(moves_per_hour=99, moves_per_workload=99)):
        for turn in range(4):
            wide(stage, f"wide-{turn}")
            await turns(200)
            stage.api.delete(PODS, f"wide-{turn}", namespace="team-b")
        assert stage.real_evictions() == 1


async def test_a_pod_that_restarts_is_not_moved_again_at_once(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(minimum_runtime_seconds=600)):
        await turns(100)
        assert stage.real_evictions() == 0, "it runs for 100 s"
        assert any("minimum runtime" in text for text in messages(stage, "CannotMakeRoom"))


async def test_a_checkpoint_of_the_future_costs_no_less_than_none_lost(stage):
    scatter(stage, "n0", "n1", saved=FUTURE)
    wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        metric = stage.metrics.registry.get_sample_value
        assert metric("fairgate_moves_lost_gpu_seconds_total", {"team": "team-a"}) == 0.0


async def test_a_forged_owner_in_another_namespace_gets_no_place(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        job_pod(stage, "thief", job="j-n0", team="team-b")
        again = job_pod(stage, "j-n0-again", job="j-n0")
        await stage.until(lambda: stage.locked()["n1"] == [again])


async def test_a_larger_pod_gets_no_place(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        job_pod(stage, "larger", job="j-n0", gpus=2)
        await turns(10)
        assert len(hold_of(stage, "n1")["places"]) == 1
        again = job_pod(stage, "j-n0-again", job="j-n0")
        await stage.until(lambda: stage.locked()["n1"] == [again])


async def test_a_pod_without_a_controller_is_never_moved(stage):
    stage.node("n0")
    stage.node("n1")
    stage.borrower("bare", on="n0")
    stage.pod("fixed", "team-a", "guaranteed", gpus=2, node="n1")
    wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: messages(stage, "CannotMakeRoom") != [])
        assert stage.real_evictions() == 0


async def test_hundreds_of_waiting_pods_of_one_team_leave_a_turn_to_others(stage):
    scatter(stage, "n0", "n1")
    for number in range(300):
        wide(stage, f"never-{number}", gpus=8)
    wide(stage, "other", team="team-a")
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1, seconds=120)
        read = {each.path for each in stage.api.asked if each.verb == "get" and "/pods/never-" in each.path}
        assert len(read) <= OF_A_TEAM
