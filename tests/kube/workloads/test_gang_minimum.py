"""Objects at their smallest; tests of sizes show what follows from it."""

import pytest

from webhook.kube.workloads.gang_minimum import at_minimum, least_together


def test_other_kinds_stay_as_they_are():
    volcano = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "spec": {"completions": 3}}
    for document in (volcano, {"kind": "Deployment"}, {}):
        assert at_minimum(document) is document


def test_the_object_that_is_given_is_not_changed():
    document = {"kind": "LeaderWorkerSet", "spec": {"replicas": 3}}
    assert at_minimum(document)["spec"]["replicas"] == 1
    assert document["spec"]["replicas"] == 3


@pytest.mark.parametrize(("said", "want"), [(3, 3), (0, None), (True, None), ("3", None), (None, None), (-1, None)])
def test_a_minimum_that_is_no_number_does_not_count(said, want):
    assert least_together({"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": said}}}}) == want
