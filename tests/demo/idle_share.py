"""The third scenario: a team is idle. Another team borrows its GPUs, and returns them when they are needed."""

from __future__ import annotations

from collections.abc import Collection

from tests.demo.picture import GpuPod
from tests.demo.scenario import Facts, Scenario
from tests.demo.stage import TEAM_A, TEAM_B, DemoCluster

AWAY = "GPUs of team A while B is away"
BACK = "team B comes back and asks for 8"
ALL = "team B asks for its other 12"


def _without(demo: DemoCluster) -> Facts:
    output = demo.output
    output.say("Kubernetes itself offers a ResourceQuota. Either it limits team A to its 20:")
    demo.kubectl(f"create quota share -n {TEAM_A} --hard=requests.nvidia.com/gpu=20")
    demo.create(TEAM_A, "train")
    demo.wait_for_usage({TEAM_A: 20})
    demo.create(TEAM_A, "one")
    output.outcome("20 GPUs are idle although team A has work for them.")
    output.say("Or it allows team A all 40:")
    demo.kubectl(f"""patch quota share -n {TEAM_A} -p '{{"spec":{{"hard":{{"requests.nvidia.com/gpu":"40"}}}}}}'""")
    demo.create(TEAM_A, "search")
    demo.create(TEAM_A, "sweep")
    demo.wait_for_usage({TEAM_A: 40})
    demo.create(TEAM_B, "large")
    demo.wait_for_usage({TEAM_A: 40}, waiting={TEAM_B: 8})
    output.outcome("No GPU is returned: team B waits until team A is done.")
    return {AWAY: "20 (or 40, and B waits)", BACK: "runs (or waits)", ALL: "runs (or waits)"}


def _within(demo: DemoCluster) -> Facts:
    output = demo.output
    demo.create(TEAM_A, "train")
    demo.wait_for_usage({TEAM_A: 20})
    demo.create(TEAM_A, "search")
    demo.create(TEAM_A, "sweep")
    full = demo.wait_for_usage({TEAM_A: 40})
    borrowed = {pod.name for pod in full if pod.is_borrowed}
    output.say(f"{40 - len(borrowed)} are guaranteed, {len(borrowed)} are borrowed and can be reclaimed.")
    demo.create(TEAM_B, "large")
    after = demo.wait_for_usage({TEAM_A: 32, TEAM_B: 8}, waiting={TEAM_A: 8})
    first = _gone(full, after)
    assert first <= borrowed, first
    nodes = {pod.node for pod in full if pod.name in first}
    demo.kubectl(
        f"get events -n {TEAM_A} --field-selector=reason=Reclaimed,involvedObject.name={min(first)}"
        " -o 'jsonpath={.items[0].message}'"
    )
    output.outcome(f"Exactly {len(first)} of the borrowed pods were evicted, all on {' and '.join(sorted(nodes))}.")
    output.say("Their controllers create them again. They wait for free GPUs.")
    demo.create(TEAM_B, "rest")
    pushed = demo.wait_for_usage({TEAM_A: 20, TEAM_B: 20}, waiting={TEAM_A: 20})
    second = _gone(after, pushed)
    demo.kubectl(f"get jobs -n {TEAM_A}")
    assert not _failed_jobs(demo)
    output.outcome("Both teams have their 20. No guaranteed pod was evicted, and no Job failed.")
    demo.kubectl(f"delete -n {TEAM_B} pod/large job/rest")
    demo.wait_for_usage({TEAM_A: 40})
    output.outcome("Team B is done: team A borrows again, automatically.")
    return {AWAY: "40", BACK: f"runs, {len(first)} pods evicted", ALL: f"runs, {len(second)} more evicted, A keeps 20"}


def _failed_jobs(demo: DemoCluster) -> list[str]:
    found = demo.cluster.api.list(f"/apis/batch/v1/namespaces/{TEAM_A}/jobs")
    return [each["metadata"]["name"] for each in found if each["status"].get("failed")]


def _gone(before: Collection[GpuPod], after: Collection[GpuPod]) -> set[str]:
    left = {pod.name for pod in after}
    return {pod.name for pod in before if pod.node and pod.name not in left}


SCENARIO = Scenario(
    title="3. The idle share",
    story="Team B is idle. Team A has work for all 40 GPUs: a Job of 20 pods, a Job of 2, and 18 workers. Then "
    "team B requests 8 GPUs on one node, and later the rest of its 20.",
    policy="lending",
    without=_without,
    within=_within,
)
