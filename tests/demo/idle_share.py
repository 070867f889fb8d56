"""The third scenario: a team is away. Its GPUs are lent, and come back when it does."""

from __future__ import annotations

from collections.abc import Collection

from tests.demo.picture import GpuPod
from tests.demo.scenario import Facts, Scenario
from tests.demo.stage import TEAM_A, TEAM_B, Stage

AWAY = "GPUs of team A while B is away"
BACK = "team B comes back and asks for 8"
ALL = "team B asks for its other 12"


def _without(stage: Stage) -> Facts:
    teller = stage.teller
    teller.say("Kubernetes' own means is a ResourceQuota. Either it keeps team A to its 20:")
    stage.kubectl(f"create quota share -n {TEAM_A} --hard=requests.nvidia.com/gpu=20")
    stage.create(TEAM_A, "train")
    stage.settle({TEAM_A: 20})
    stage.create(TEAM_A, "one")
    teller.outcome("20 GPUs idle, though nobody else wants them.")
    teller.say("Or it lets team A have them all:")
    stage.kubectl(f"""patch quota share -n {TEAM_A} -p '{{"spec":{{"hard":{{"requests.nvidia.com/gpu":"40"}}}}}}'""")
    stage.create(TEAM_A, "search")
    stage.create(TEAM_A, "sweep")
    stage.settle({TEAM_A: 40})
    stage.create(TEAM_B, "large")
    stage.settle({TEAM_A: 40}, waiting={TEAM_B: 8})
    teller.outcome("Nobody gives anything back: team B waits until team A is done.")
    return {AWAY: "20 (or 40, and B waits)", BACK: "runs (or waits)", ALL: "runs (or waits)"}


def _within(stage: Stage) -> Facts:
    teller = stage.teller
    stage.create(TEAM_A, "train")
    stage.settle({TEAM_A: 20})
    stage.create(TEAM_A, "search")
    stage.create(TEAM_A, "sweep")
    full = stage.settle({TEAM_A: 40})
    borrowed = {pod.name for pod in full if pod.is_borrowed}
    teller.say(f"{40 - len(borrowed)} are guaranteed, {len(borrowed)} are borrowed and can be taken back.")
    stage.create(TEAM_B, "large")
    after = stage.settle({TEAM_A: 32, TEAM_B: 8}, waiting={TEAM_A: 8})
    first = _gone(full, after)
    assert first <= borrowed, first
    nodes = {pod.node for pod in full if pod.name in first}
    stage.kubectl(
        f"get events -n {TEAM_A} --field-selector=reason=Reclaimed,involvedObject.name={min(first)}"
        " -o 'jsonpath={.items[0].message}'"
    )
    teller.outcome(f"Exactly {len(first)} of the borrowed pods were evicted, all on {' and '.join(sorted(nodes))}.")
    teller.say("Their controllers make them again. They wait for room.")
    stage.create(TEAM_B, "rest")
    pushed = stage.settle({TEAM_A: 20, TEAM_B: 20}, waiting={TEAM_A: 20})
    second = _gone(after, pushed)
    stage.kubectl(f"get jobs -n {TEAM_A}")
    assert not _failed_jobs(stage)
    teller.outcome("Both teams have their 20. Not one guaranteed pod was touched, and no Job failed.")
    stage.kubectl(f"delete -n {TEAM_B} pod/large job/rest")
    stage.settle({TEAM_A: 40})
    teller.outcome("Team B is done: team A borrows again, by itself.")
    return {AWAY: "40", BACK: f"runs, {len(first)} pods evicted", ALL: f"runs, {len(second)} more evicted, A keeps 20"}


def _failed_jobs(stage: Stage) -> list[str]:
    found = stage.cluster.api.list(f"/apis/batch/v1/namespaces/{TEAM_A}/jobs")
    return [each["metadata"]["name"] for each in found if each["status"].get("failed")]


def _gone(before: Collection[GpuPod], after: Collection[GpuPod]) -> set[str]:
    left = {pod.name for pod in after}
    return {pod.name for pod in before if pod.node and pod.name not in left}


SCENARIO = Scenario(
    title="3. The idle share",
    story="Team B is away. Team A has work for all 40 GPUs: a Job of 20 pods, a Job of 2, and 18 workers. Then "
    "team B comes back and wants 8 on one node, and later the rest of its 20.",
    policy="lending",
    without=_without,
    within=_within,
)
