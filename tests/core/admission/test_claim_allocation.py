"""kube-scheduler allocates devices to a claim: only as many as its pods were admitted with."""

from dataclasses import replace

import pytest

from tests.core.support import make
from tests.core.support.make import demand, policy, resident, team, world
from webhook.core.admission.domain_rules import Allocation, judge_allocation
from webhook.core.devices.claim_users import ClaimKey, ClassCount, DeviceRequest
from webhook.core.model.amounts import DEVICE_CLASS, ONE_GPU, Uid
from webhook.core.model.decision import Deny, NotApplicable, Retry
from webhook.core.model.demand import ClaimRef
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.pod import Admitted, Handling, NamespaceFacts
from webhook.core.model.policy import BUILT_IN_RESOURCES, Defaults, UnknownTeam
from webhook.core.model.reasons import Code

GPU = "gpu.nvidia.com"
CLAIM = ClaimKey("claim", "team-a", "mine")
SHARING = (ClaimRef(claim="mine"),)
POLICY = policy(
    team(guaranteed=0, limit_=10),
    resources={**BUILT_IN_RESOURCES, DEVICE_CLASS + GPU: ONE_GPU},
    exempt_namespaces=("sys",),
)


def devices(number, driver=GPU):
    return (DeviceRequest((ClassCount(GPU, number, driver),)),)


def place(number, *pods):
    """The world with the claim `mine` of so many devices, UID c1, and pods that use it."""
    made = world(POLICY)
    made.set_device_class(GPU, DeviceClass(GPU, mentions_gpus=True))
    made.set_claim(CLAIM, devices(number), Uid("c1"))
    for each in pods:
        made.set_pod(each)
    return made


def user(uid="u1", admitted=1, *, claims=(), at="p1", **more):
    held = None if admitted is None else Admitted(admitted * ONE_GPU, at, claims)
    return resident(0, uid=uid, claims=more.pop("refs", SHARING), demand=demand(0), admitted=held, **more)


def asked(number, *pods, uid="c1", key=CLAIM, **more):
    return Allocation(key, Uid(uid), devices(number), tuple(map(Uid, pods or ("u1",))), **more)


@pytest.mark.parametrize(
    ("number", "pods", "want"),
    [
        (1, [user()], Code.CLAIM_COVERED),
        (2, [user()], Code.CLAIM_CHANGED),
        (9, [user()], Code.CLAIM_CHANGED),
        # a pod admitted with a claim charged to another pod inherits it unchanged
        (9, [user(admitted=0, claims=(Uid("c1"),))], Code.CLAIM_COVERED),
        (9, [user(admitted=0, claims=(Uid("c0"),))], Code.CLAIM_CHANGED),
        # no pod was admitted with GPUs at all
        (1, [user(admitted=None)], Code.CLAIM_CHANGED),
        (1, [user(), user("u2", admitted=None)], Code.CLAIM_CHANGED),
        # without a full decision of this policy the present limits apply
        (9, [user(admitted=None, handling=Handling.DAEMON_SET)], Code.CLAIM_COVERED),
        (11, [user(admitted=None, handling=Handling.DAEMON_SET)], Code.TEAM_LIMIT_EXCEEDED),
        (9, [user(at="p0")], Code.CLAIM_COVERED),
        (11, [user(at="p0")], Code.TEAM_LIMIT_EXCEEDED),
        (9, [user(refs=(ClaimRef("mine", "t", "group", "e"),))], Code.CLAIM_COVERED),
    ],
)
def test_a_claim_gets_what_its_pods_were_admitted_with(number, pods, want):
    answer = judge_allocation(asked(number, *(pod.uid for pod in pods)), place(number, *pods))
    reason = answer.reasons[0] if isinstance(answer, Deny) else answer.reason
    assert reason.code is want, reason.text


@pytest.mark.parametrize(
    "question",
    [asked(1, uid="c2"), asked(1, "unseen"), asked(1, key=CLAIM._replace(name="other"))],
    ids=["another claim of the name", "a pod that is not seen", "a claim that is not seen"],
)
def test_unknown_objects_are_retried(question):
    assert isinstance(judge_allocation(question, place(1, user())), Retry)


def test_claims_without_gpus_and_exempt_claims_are_not_judged():
    here = place(1, user())
    here.set_device_class("nics", DeviceClass("nics"))
    nics = asked(0)._replace(devices=(DeviceRequest((ClassCount("nics", 9, "nic.x.dev"),)),))
    assert judge_allocation(nics, here).reason.code is Code.NO_GPU
    here.set_namespace(NamespaceFacts("sys"))
    exempt = asked(32, key=CLAIM._replace(namespace="sys"))
    assert judge_allocation(exempt, here).reason.code is Code.EXEMPT


@pytest.mark.parametrize(
    ("unknown", "want"), [(UnknownTeam.REJECT, Code.UNKNOWN_TEAM), (UnknownTeam.PREEMPTIBLE, Code.CLAIM_CHANGED)]
)
def test_a_namespace_of_no_team_gets_no_gpus_behind_its_pods(unknown, want):
    here, key = place(1), CLAIM._replace(namespace="unowned")
    here.set_policy(replace(POLICY, defaults=Defaults(unknown_team=unknown)))
    here.set_claim(key, devices(1), Uid("c1"))
    here.set_pod(user(admitted=None, namespace="unowned"))
    assert judge_allocation(asked(1, key=key), here).reasons[0].code is want


def test_a_class_without_a_weight_is_refused_or_retried():
    here = place(1, user())
    here.set_device_class("mig", DeviceClass("mig", mentions_gpus=True))
    unknown = asked(0)._replace(devices=(DeviceRequest((ClassCount("mig", 1),)),))
    assert judge_allocation(unknown, here).reasons[0].code is Code.UNKNOWN_GPU_RESOURCE
    missing = asked(0)._replace(devices=(DeviceRequest((ClassCount("gone", 1),)),))
    assert isinstance(judge_allocation(missing, here), Retry)


MADE = CLAIM._replace(name="x")


@pytest.mark.parametrize(("number", "want"), [(2, NotApplicable), (3, Deny)])
def test_a_claim_created_by_kube_scheduler_is_what_the_containers_request(number, want):
    here = place(1, resident(2, uid="u1"))
    assert isinstance(judge_allocation(asked(number, key=MADE, made_for=Uid("u1")), here), want)


@pytest.mark.parametrize(
    ("pod", "made_for", "want"),
    [
        (resident(0, uid="u1", demand=demand(2), claims=SHARING), "u1", NotApplicable),
        # what its claims count is no room for its containers' claim
        (resident(0, uid="u1", demand=demand(1), claims=SHARING), "u1", Deny),
        (resident(2, uid="u1"), None, Retry),
        (resident(2, uid="u1"), "u2", Retry),
        # kube-controller-manager gives it a claim from the template, and the watch has not shown which
        (resident(0, uid="u1", demand=demand(2), claims=(ClaimRef(template="t"),)), "u1", Retry),
    ],
    ids=["its own", "less", "not marked", "made for another pod", "a template"],
)
def test_a_claim_that_its_pod_does_not_name_is_believed_only_as_far_as_containers_request(pod, made_for, want):
    here = place(4, pod)
    answer = judge_allocation(asked(2, key=MADE, made_for=made_for and Uid(made_for)), here)
    assert isinstance(answer, want), answer


def test_claims_that_a_pod_names_are_compared_together_whatever_they_say_of_themselves():
    """Four claims of one device, made again with four each and the mark of kube-scheduler's own claims."""
    names = [f"c{number}" for number in range(4)]
    here = place(1, user(admitted=4, claims=tuple(map(Uid, names)), refs=tuple(ClaimRef(claim=name) for name in names)))
    for name in names:
        here.set_claim(CLAIM._replace(name=name), devices(1), Uid(name))
    assert here.charge_of("u1").gpus == 4 * ONE_GPU
    for name in names:
        here.set_claim(CLAIM._replace(name=name), devices(4), Uid(f"{name}-again"))
    for name in names:
        forged = asked(4, key=CLAIM._replace(name=name), uid=f"{name}-again", made_for=Uid("u1"))
        assert judge_allocation(forged, here).reasons[0].code is Code.CLAIM_CHANGED


def test_a_claim_that_grew_is_not_passed_on_by_a_pod_that_joined_it():
    """The pod that joins is admitted with 0: the new claim was compared with no limit."""
    here = place(1, user(admitted=1, claims=(Uid("c1"),)))
    here.set_claim(CLAIM, devices(8), Uid("c2"))
    joining = here.with_claims(make.pod(uid="u2", demand=demand(0), claims=SHARING)).demand
    assert (joining.gpus, joining.claims) == (0, ())
    here.set_pod(user("u2", admitted=0, claims=joining.claims))
    here.remove_pod("u1")
    answer = judge_allocation(asked(8, "u2", uid="c2"), here)
    assert answer.reasons[0].code is Code.CLAIM_CHANGED
