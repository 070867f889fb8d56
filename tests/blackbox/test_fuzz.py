"""Any input: never a crash, always a valid answer, never a charge over a limit."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.blackbox.fuzzing import LIMITS, NODES, POLICY, UNIT, assert_answer, patched, rarely
from tests.blackbox.in_process import InProcess
from tests.blackbox.objects import GPU, TIER, encode, pod, review
from tests.blackbox.server import serving
from tests.examples import examples


@pytest.fixture(scope="module")
def reviewer(tmp_path_factory):
    return InProcess(tmp_path_factory.mktemp("reviewer"), POLICY, NODES)


# -- any bytes

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
GOOD = encode(review(pod("p", "team-a"), uid="u"))


@st.composite
def torn(draw):
    """A valid body with a piece removed, doubled or overwritten."""
    start = draw(st.integers(0, len(GOOD)))
    end = draw(st.integers(start, min(len(GOOD), start + 40)))
    return GOOD[:start] + draw(st.binary(max_size=8) | st.just(GOOD[start:end] * 2)) + GOOD[end:]


@examples(60)
@given(
    content=st.binary(max_size=200) | JSON_VALUES.map(encode) | torn(), path=st.sampled_from(["/mutate", "/validate"])
)
def test_any_bytes(reviewer, content, path):
    reviewer.reset()
    answer = reviewer.ask(path, content)
    if isinstance(answer, str):
        assert answer.startswith("400 ")
        return
    assert_answer(answer, json.loads(content)["request"]["uid"])


# -- reviews with unexpected values

STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, 1e308, -0.0, 1e-300]),
    st.sampled_from(
        ["", " ", "0", "-1", "1.5", "1e3", "2Gi", "9E", "1e999", "NaN", "null", "true", "\x00", "\u2028", "٣"]
    ),
    st.sampled_from(
        ["CREATE", "UPDATE", "DELETE", "CONNECT", "Always", "In", "Gt", "NoSchedule", "t4", "n2", "team-b"]
    ),
    st.text(max_size=30),
    st.text(min_size=1, max_size=3).map(lambda text: text * 3000),
    st.sampled_from([[], {}, [[]], [None], [{}], {"": None}, {"a": {"b": []}}, {GPU: "1"}, ["x"]]),
    JSON_VALUES,
)
SPEC_EXTRAS = ["nodeName", "schedulerName", "priorityClassName", "priority", "nodeSelector", "affinity", "tolerations"]
SPEC_EXTRAS += ["overhead", "resources", "volumes", "initContainers", "topologySpreadConstraints", "resourceClaims"]
OTHER_EXTRAS = [
    "labels",
    "annotations",
    "ownerReferences",
    "uid",
    "generateName",
    "ports",
    "restartPolicy",
    "subResource",
]
EXTRAS = SPEC_EXTRAS + OTHER_EXTRAS


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


RICH = pod(
    "p",
    "team-a",
    gpus=2,
    nodeSelector={"gpu": "t4"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "memory", "operator": "Lt", "values": ["50000"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": []}}],
        },
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    },
    initContainers=[{"name": "init", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    volumes=[{"name": "v", "emptyDir": {}}],
    overhead={"cpu": "100m"},
)
RICH["metadata"] |= {
    "labels": {"app": "x", TIER: "preemptible"},
    "annotations": {"fairgate.dev/pool": "t4", "fairgate.dev/requires": ""},
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}],
}
BASES = [
    review(RICH, uid="u"),
    review(pod("p", "team-b"), uid="u"),
    review(RICH, uid="u", operation="UPDATE", old=RICH),
    review(None, uid="u", operation="DELETE", old=RICH),
]
PLACES = [list(places(base)) for base in BASES]


@st.composite
def strange_reviews(draw):
    """A valid review in which one to three values are replaced, removed or added."""
    index = draw(st.integers(0, len(BASES) - 1))
    made = copy.deepcopy(BASES[index])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES[index][1:]))
        holder = made
        try:
            for part in path[:-1]:
                holder = holder[part]
            match draw(st.sampled_from(["replace", "replace", "add", "remove"])):
                case "replace":
                    holder[path[-1]] = copy.deepcopy(draw(STRANGE))
                case "remove":
                    del holder[path[-1]]
                case "add":
                    holder[path[-1]][draw(st.sampled_from(EXTRAS))] = copy.deepcopy(draw(STRANGE))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return made


@examples(100)
@given(sent=strange_reviews())
def test_unexpected_values_in_a_review(reviewer, sent):
    reviewer.reset()
    advice = reviewer.ask("/mutate", sent)
    assert reviewer.charged() == {}
    if isinstance(advice, str):
        assert advice.startswith("400 ")
        assert reviewer.ask("/validate", sent) == advice
        return
    uid = sent["request"]["uid"]
    response = assert_answer(advice, uid)
    if "patch" in response:
        sent = patched(sent, response)
        again = assert_answer(reviewer.ask("/mutate", sent), uid)
        assert again["allowed"]
        assert "patch" not in again
    validated = assert_answer(reviewer.ask("/validate", sent), uid)
    if not validated["allowed"] or sent["request"].get("dryRun") or sent["request"]["operation"] != "CREATE":
        assert reviewer.charged() == {}
    for team, units in reviewer.charged().items():
        assert 0 < units <= LIMITS.get(team, 10**9) * UNIT


# -- the same over HTTP, in smaller numbers


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("fairgate"), policy=POLICY, world=NODES) as running:
        yield running


TARGETS = st.sampled_from(["/mutate", "/validate", "/validate?timeout=1s"]) | st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20
).map(lambda text: f"/mutate?{text}")
TYPES = rarely("text/plain", "application/json;charset=x", "application/json")


@examples(40)
@given(content=st.binary(max_size=200) | torn() | strange_reviews(), target=TARGETS, content_type=TYPES)
def test_over_http(server, content, target, content_type):
    """Dry runs only, so that nothing may ever be charged."""
    if isinstance(content, dict) and isinstance(content.get("request"), dict):
        content["request"]["dryRun"] = True
    body = content if isinstance(content, bytes) else encode(content)
    body = body.replace(b'"dryRun":false', b'"dryRun":true')
    reply = server.post(target, body, {"Content-Type": content_type})
    if reply.status == 200:
        assert_answer(reply.json, json.loads(body)["request"]["uid"])
    else:
        assert reply.status in (400, 415)
        assert reply.json.keys() == {"error", "code"}
    assert server.all_charged() == {}
