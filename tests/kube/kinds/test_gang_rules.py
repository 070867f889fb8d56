"""Rules of gangs; tests of sizes show what follows from them."""

import pytest

from webhook.kube.kinds.kind_row import NO_GANG, Stage
from webhook.kube.kinds.table import BY_KIND


def jobs(*entries, **spec):
    made = [{"name": name, "dependsOn": [{"name": each, "status": how} for each, how in on]} for name, *on in entries]
    return stages_of_job_set({"replicatedJobs": made, **spec})


def stages_of_job_set(spec):
    return BY_KIND["jobset.x-k8s.io", "JobSet"].gang.stages_of({"spec": spec})


def test_a_kind_without_rules_stays_as_it_is():
    document = {"spec": {"completions": 3}}
    assert NO_GANG.at_minimum(document) is document
    assert NO_GANG.least_of(document) is None
    assert NO_GANG.stages_of(document).of("any") == Stage()


def test_the_object_that_is_given_is_not_changed():
    document = {"spec": {"replicas": 3}}
    assert BY_KIND["leaderworkerset.x-k8s.io", "LeaderWorkerSet"].gang.at_minimum(document)["spec"]["replicas"] == 1
    assert document["spec"]["replicas"] == 3


@pytest.mark.parametrize(("said", "want"), [(3, 3), (0, None), (True, None), ("3", None), (None, None), (-1, None)])
def test_a_minimum_that_is_no_number_does_not_count(said, want):
    document = {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": said}}}}
    assert BY_KIND["kubeflow.org", "PyTorchJob"].gang.least_of(document) == want


def test_a_job_comes_after_all_that_it_depends_on():
    found = jobs(("a",), ("b", ("a", "Ready")), ("c", ("a", "Complete"), ("b", "Ready")), ("d", ("c", "Ready")))
    assert [found.of(name) for name in "abcd"] == [Stage(), Stage(0, 1), Stage(1, 0), Stage(1, 1)]


def test_in_order_each_job_is_a_step():
    found = jobs(("a",), ("b",), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert [found.of(name) for name in "ab"] == [Stage(), Stage(step=1)]


def test_what_says_nothing_starts_at_once():
    assert jobs(("a",), ("b", ("missing", "Ready"))).of("b") == Stage(step=1)
    assert stages_of_job_set({"replicatedJobs": "x"}).by_role == {}
