"""What evictions do to a workload, by its manifest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.kube.admission.job_review import MOST_RULES
from webhook.kube.kinds.model import SURVIVES, Budget, EvictionEffect
from webhook.kube.kinds.table import BY_KIND
from webhook.kube.workloads.expand import eviction_effect

EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
FULL = {"podFailurePolicy": {"rules": [EXIT] * MOST_RULES}}
AT_ONCE = "it fails with its first evicted pod"


def job(restart="Never", **spec):
    return {"spec": {"template": {"spec": {"restartPolicy": restart}}, **spec}}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        (job(), EvictionEffect(without_rule="it fails after more than 6 evicted pods")),
        (job(backoffLimit=0), EvictionEffect(without_rule=AT_ONCE)),
        (job(backoffLimit=2**31 - 1), SURVIVES),
        (job(backoffLimit=0, **FULL), EvictionEffect(always=AT_ONCE)),
        (job("OnFailure", backoffLimit=2), EvictionEffect(always="it fails after more than 2 evicted pods")),
        (job(backoffLimit="many"), SURVIVES),
    ],
    ids=["by default", "no retry", "no limit", "no room for a rule", "restarted in place", "malformed"],
)
def test_jobs_fail_of_evictions_unless_they_get_the_rule(document, want):
    assert eviction_effect(document, BY_KIND["batch", "Job"], Budget()) == want
    assert eviction_effect({"spec": {"jobTemplate": document}}, BY_KIND["batch", "CronJob"], Budget()) == want


def test_a_job_set_fails_with_any_of_its_jobs():
    jobs = [{"name": "a", "template": job()}, {"name": "b", "template": job("", backoffLimit=0)}]
    found = eviction_effect({"spec": {"replicatedJobs": jobs}}, BY_KIND["jobset.x-k8s.io", "JobSet"], Budget())
    assert found == EvictionEffect(always=AT_ONCE), "JobSet restarts pods in place by default: they get no rule"


def test_other_kinds_survive_but_mpi_jobs():
    assert eviction_effect(job(), BY_KIND["apps", "Deployment"], Budget()) == SURVIVES
    assert eviction_effect({}, BY_KIND["kubeflow.org", "MPIJob"], Budget()).always


@given(
    st.sampled_from([("batch", "Job"), ("jobset.x-k8s.io", "JobSet"), ("kubeflow.org", "PyTorchJob")]),
    st.dictionaries(
        st.sampled_from(["template", "replicatedJobs", "backoffLimit", "runPolicy", "podFailurePolicy"]),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.dictionaries(st.text(max_size=2), st.none())),
    ),
)
@examples()
def test_malformed_objects_are_the_api_servers_to_refuse(kind, spec):
    assert isinstance(eviction_effect({"spec": spec}, BY_KIND[kind], Budget()), EvictionEffect)
