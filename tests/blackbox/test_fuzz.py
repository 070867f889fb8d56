"""Whatever comes in: never a crash, always an answer of the API's form, never a charge over a limit."""

import base64
import copy
import json
import os

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.blackbox.gate import InProcess
from tests.blackbox.objects import GPU, TIER, encode, node, pod, review
from tests.blackbox.server import serving

A100, T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
POLICY = {
    "teams": [
        {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 6, "limit": 12}, "perPod": {"limit": 8}},
        {
            "name": "b",
            "namespaces": ["team-b"],
            "gpus": {"guaranteed": 10, "limit": 20},
            "models": {A100: {"guaranteed": 4, "limit": 8}},
            "perUser": {"limit": 9},
        },
    ],
    "pools": [
        {
            "name": "a100",
            "nodeSelector": {"gpu": "a100"},
            "affinity": [{"key": "memory", "operator": "Gt", "values": ["30000"]}],
            "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
            "capabilities": ["nvlink"],
        },
        {"name": "t4", "nodeSelector": {"gpu": "t4"}, "teams": ["a", "b"]},
        {"name": "ours", "match": {"podSelector": {"matchLabels": {"app": "kafka"}}}},
    ],
    "placement": {"keepWhole": {"nodes": 1}},
    "exempt": {"namespaces": ["kube-system"]},
}
LIMITS = {"a": 12, "b": 20}
UNIT = 840_000


def labelled(name, model, taints=(), **labels):
    made = node(name)
    made["metadata"]["labels"] |= labels | ({"nvidia.com/gpu.product": model} if model else {})
    made["spec"]["taints"] = list(taints)
    return made


TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
NODES = [
    labelled("n0", A100, [TAINT], gpu="a100", memory="80000"),
    labelled("n1", A100, [TAINT], gpu="a100", memory="40000"),
    labelled("n2", T4, gpu="t4", memory="16000"),
    labelled("n3", T4, gpu="t4", memory="16000", zone="x"),
    labelled("n4", "", gpu="t4", memory="16000"),
]


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return InProcess(tmp_path_factory.mktemp("gate"), POLICY, NODES)


def fuzz(examples):
    """So many examples, or FUZZ_TIMES as many."""
    return settings(
        max_examples=examples * int(os.environ.get("FUZZ_TIMES", "1")),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def assert_answer(told, uid):
    """An AdmissionReview v1 with the same uid."""
    assert (told["apiVersion"], told["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = told["response"]
    assert response["uid"] == uid
    if not response["allowed"]:
        assert response["status"]["code"] in (403, 429)
        assert response["status"]["message"]
        assert "patch" not in response
    assert all(0 < len(text) <= 120 and "\n" not in text for text in response.get("warnings", ()))
    return response


def patched(asked, response):
    patch = json.loads(base64.b64decode(response["patch"]))
    changed = copy.deepcopy(asked)
    changed["request"]["object"] = jsonpatch.apply_patch(asked["request"]["object"], patch)
    return changed


# -- any bytes

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
GOOD = encode(review(pod("p", "team-a"), uid="u"))


@st.composite
def torn(draw):
    """A good body with a piece cut out, doubled or overwritten."""
    start = draw(st.integers(0, len(GOOD)))
    end = draw(st.integers(start, min(len(GOOD), start + 40)))
    return GOOD[:start] + draw(st.binary(max_size=8) | st.just(GOOD[start:end] * 2)) + GOOD[end:]


@fuzz(200)
@given(
    content=st.binary(max_size=200) | JSON_VALUES.map(encode) | torn(), path=st.sampled_from(["/mutate", "/validate"])
)
def test_any_bytes(gate, content, path):
    gate.reset()
    told = gate.ask(path, content)
    if isinstance(told, str):
        assert told.startswith("400 ")
        return
    assert_answer(told, json.loads(content)["request"]["uid"])


# -- reviews with something strange in them

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
    """A good review in which one to three places hold something else, are gone, or have something more."""
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


@fuzz(500)
@given(asked=strange_reviews())
def test_something_strange_in_a_review(gate, asked):
    gate.reset()
    advice = gate.ask("/mutate", asked)
    assert gate.charged() == {}
    if isinstance(advice, str):
        assert advice.startswith("400 ")
        assert gate.ask("/validate", asked) == advice
        return
    uid = asked["request"]["uid"]
    response = assert_answer(advice, uid)
    if "patch" in response:
        asked = patched(asked, response)
        again = assert_answer(gate.ask("/mutate", asked), uid)
        assert again["allowed"]
        assert "patch" not in again
    validated = assert_answer(gate.ask("/validate", asked), uid)
    if not validated["allowed"] or asked["request"].get("dryRun") or asked["request"]["operation"] != "CREATE":
        assert gate.charged() == {}
    for team, units in gate.charged().items():
        assert 0 < units <= LIMITS.get(team, 10**9) * UNIT


# -- pods as people write them

LABELS = {"gpu": ["a100", "t4", "h100"], "memory": ["16000", "80000"], "zone": ["x"], "kubernetes.io/hostname": ["n1"]}
KEYS = st.sampled_from(sorted(LABELS))


@st.composite
def requirements(draw, of=KEYS):
    key = draw(of)
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    known = LABELS.get(key, ["n0", "n1", "n2", "n3", "n4"])
    values = {
        "In": st.lists(st.sampled_from(known), min_size=1, max_size=2),
        "NotIn": st.lists(st.sampled_from(known), min_size=1, max_size=2),
        "Gt": st.sampled_from([["20000"], ["-1"], ["x"]]),
        "Lt": st.sampled_from([["20000"], ["90000"]]),
    }
    return {"key": key, "operator": operator} | ({"values": draw(values[operator])} if operator in values else {})


FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.sampled_from(["n0", "n1", "n2", "n3", "n9"]).map(lambda name: [name]),
    }
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(requirements(), max_size=2),
        "matchFields": st.lists(FIELDS, min_size=1, max_size=1),
    },
)
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": st.lists(TERMS, min_size=1, max_size=3)}
                ),
                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                    st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERMS}), max_size=2
                ),
            },
        ),
        "podAffinity": st.just({}),
    },
)
TOLERATIONS = st.fixed_dictionaries(
    {"operator": st.just("Exists")},
    optional={"key": st.sampled_from([GPU, "other"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
)


def rarely(*values):
    """One of these, the last one four times of five."""
    return st.sampled_from([*values, *[values[-1]] * 4])


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(KEYS, st.sampled_from(["a100", "t4", "16000", "x"]), max_size=1),
        "affinity": AFFINITY,
        "tolerations": st.lists(TOLERATIONS, max_size=2),
        "schedulerName": rarely("volcano", "default-scheduler"),
        "volumes": st.just([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "initContainers": st.sampled_from([1, 4]).map(
            lambda gpus: [pod("i", "x", gpus=gpus)["spec"]["containers"][0] | {"restartPolicy": "Always"}]
        ),
    },
)


@st.composite
def creations(draw):
    """A pod of one of the teams, and how it is created."""
    namespace = draw(rarely("stranger", "kube-system", "team-b", "team-b", "team-a"))
    manifest = pod("p", namespace, gpus=draw(rarely(0, 7, 9, 1, 2, 3)), **draw(SPECS))
    if draw(rarely("n1", "n9", "")):
        manifest["spec"]["nodeName"] = "n1"
    manifest["metadata"]["labels"] = draw(
        st.fixed_dictionaries(
            {}, optional={"app": st.just("kafka"), TIER: st.sampled_from(["guaranteed", "preemptible"])}
        )
    )
    manifest["metadata"]["annotations"] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "fairgate.dev/pool": rarely("none", "a100", "t4"),
                "fairgate.dev/requires": rarely("rdma", "nvlink", " , "),
            },
        )
    )
    for key in ("labels", "annotations"):
        if not manifest["metadata"][key] and draw(st.booleans()):
            del manifest["metadata"][key]
    return manifest, draw(st.sampled_from(["alice", "bob"])), draw(st.integers(0, 4)) == 0


@fuzz(120)
@given(st.lists(creations(), min_size=1, max_size=12), st.booleans())
def test_pods_never_pass_a_limit_or_fill_a_node_beyond_its_gpus(gate, listed, all_at_once):
    """One after another, or all mutated before the first one is validated: the commit must hold either way."""
    gate.reset()
    asked = [review(made, uid=f"u{n}", user=who, dry_run=dry) for n, (made, who, dry) in enumerate(listed)]
    rounds = [asked] if all_at_once else [[one] for one in asked]
    held = dict.fromkeys(("n0", "n1", "n2", "n3", "n4"), 0)
    for questions in rounds:
        for final in [advised for question in questions if (advised := mutated_twice(gate, question))]:
            commit(gate, final, held)


def mutated_twice(gate, asked):
    """Take a review through /mutate, and once more; None where it is refused."""
    before = gate.charged()
    response = assert_answer(gate.ask("/mutate", asked), asked["request"]["uid"])
    assert gate.charged() == before
    if not response["allowed"]:
        return None
    if "patch" in response:
        asked = patched(asked, response)
        again = gate.ask("/mutate", asked)["response"]
        assert again["allowed"]
        assert "patch" not in again
    return asked


def commit(gate, asked, held):
    """Take a review through /validate, and hold limits and nodes."""
    before = gate.charged()
    request = asked["request"]
    request["object"]["metadata"]["uid"] = f"uid-{request['uid']}"
    response = assert_answer(gate.ask("/validate", asked), request["uid"])
    if not response["allowed"] or request["dryRun"]:
        assert gate.charged() == before
        return
    for team, units in gate.charged().items():
        assert units <= LIMITS.get(team, 10**9) * UNIT
    audit = response["auditAnnotations"]
    if audit.get("nodes"):
        held[audit["nodes"]] += int(audit["gpus"])
        assert held[audit["nodes"]] <= 10


# -- the same over HTTP, in smaller numbers


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("fairgate"), policy=POLICY, world=NODES) as running:
        yield running


TARGETS = st.sampled_from(["/mutate", "/validate", "/validate?timeout=1s"]) | st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20
).map(lambda text: f"/mutate?{text}")
TYPES = rarely("text/plain", "application/json;charset=x", "application/json")


@fuzz(100)
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
