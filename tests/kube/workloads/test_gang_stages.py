"""The order of roles; tests of sizes show what follows from it."""

from webhook.kube.workloads.gang_stages import Stage, stages_of


def jobs(*entries, **spec):
    made = [{"name": name, "dependsOn": [{"name": each, "status": how} for each, how in on]} for name, *on in entries]
    return stages_of({"kind": "JobSet", "spec": {"replicatedJobs": made, **spec}})


def test_a_job_comes_after_all_that_it_depends_on():
    found = jobs(("a",), ("b", ("a", "Ready")), ("c", ("a", "Complete"), ("b", "Ready")), ("d", ("c", "Ready")))
    assert [found.of(name) for name in "abcd"] == [Stage(), Stage(0, 1), Stage(1, 0), Stage(1, 1)]


def test_in_order_each_job_is_a_step():
    found = jobs(("a",), ("b",), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert [found.of(name) for name in "ab"] == [Stage(), Stage(step=1)]


def test_what_says_nothing_starts_at_once():
    assert stages_of({"kind": "Job"}).of("any") == Stage()
    assert jobs(("a",), ("b", ("missing", "Ready"))).of("b") == Stage(step=1)
    assert stages_of({"kind": "JobSet", "spec": {"replicatedJobs": "x"}}).by_role == {}
