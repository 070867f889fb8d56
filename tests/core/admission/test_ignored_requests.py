"""Warnings on what a pod says of itself; and the property that what it says of its run changes no decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE
from tests.core.support.racks import A_RACK, gang, racks
from webhook.core.admission.admission import admit
from webhook.core.admission.domain_rules import ignored_requests
from webhook.core.model.decision import Admit, Queue
from webhook.core.model.pod import RunTime
from webhook.core.model.reasons import Code

PROBLEM = RunTime(problem="annotation is ignored")


@pytest.mark.parametrize("domain", [None, A_RACK], ids=["alone", "in a gang"])
def test_a_run_time_that_cannot_be_read_is_one_warning_on_a_pod_that_starts_or_waits(domain):
    place = racks(a=[8])
    pod = gang(1, domain=domain)[0].pod._replace(run_time=PROBLEM)
    pod = pod if domain is not None else pod._replace(gang=None)
    decision = admit(pod, ALICE, place)
    assert isinstance(decision, Admit if domain is None else Queue)
    assert [(each.code, each.text) for each in decision.warnings] == [(Code.RUN_TIME_IGNORED, PROBLEM.problem)]


def test_what_is_said_of_gangs_comes_first():
    pod = gang(1, domain=None)[0].pod._replace(gang_problem="no number", domain_problem="no key", run_time=PROBLEM)
    found = ignored_requests(pod, None, racks(a=[8]))
    assert [each.code for each in found] == [Code.GANG_IGNORED, Code.TOPOLOGY_IGNORED, Code.RUN_TIME_IGNORED]
    assert ignored_requests(pod._replace(gang_problem="", domain_problem="", run_time=RunTime(60)), None, racks()) == ()


@given(st.integers(0, 10**8), st.booleans(), st.integers(0, 9))
def test_what_is_said_of_a_run_changes_no_decision(stated, is_alone, free):
    place = racks(a=[free])
    pod = gang(1, domain=None)[0].pod
    pod = pod._replace(gang=None) if is_alone else pod
    assert admit(pod._replace(run_time=RunTime(stated)), ALICE, place) == admit(pod, ALICE, place)
