"""Properties: what any valid policy keeps, and that no input causes an error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.core.model.amounts import UNLIMITED, format_gpus, format_limit
from webhook.core.model.policy import Policy
from webhook.policy.documents import PolicyError
from webhook.policy.watch import parse

names = st.text("abz09", min_size=1, max_size=4)
thousandths = st.integers(0, 64_000)
labels = st.dictionaries(names, names, min_size=1, max_size=2)


@st.composite
def shares(draw):
    guaranteed = draw(thousandths)
    extra = draw(st.none() | thousandths)
    limit = "unlimited" if extra is None else str((guaranteed + extra) / 1000)
    return {"guaranteed": guaranteed / 1000, "limit": limit}


@st.composite
def documents(draw):
    owned = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    weights = st.sampled_from([1, 2, 0.5, "1/3"])
    teams = [
        {"name": name, "namespaces": [name, f"{name}-*"], "gpus": draw(shares()), "weight": draw(weights)}
        for name in owned
    ]
    pools = [
        {"name": name, "nodeSelector": draw(labels), "teams": draw(st.lists(st.sampled_from(owned), min_size=1))}
        for name in draw(st.lists(names, max_size=3, unique=True))
    ]
    return {
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Policy",
        "teams": teams,
        "pools": pools,
        "placement": {"mode": draw(st.sampled_from(["auto", "require", "prefer", "off"]))},
        "workloads": {"onLimit": draw(st.sampled_from(["warn", "reject"]))},
        "queue": {"depth": draw(st.integers(0, 9)), "halfLife": f"{draw(st.integers(0, 9))}m"},
        "reclaim": {"notice": f"{draw(st.integers(0, 9999))}s", "protect": [{"matchLabels": draw(labels)}]},
    }


def loaded(document) -> Policy:
    return parse({"f.yaml": json.dumps(document).encode()}, origin="f")


@given(documents())
@examples(30)
def test_valid_policy_round_trips(document):
    policy = loaded(document)
    back = {
        **document,
        "teams": [
            {
                "name": team.name,
                "namespaces": list(team.namespaces),
                "weight": str(team.weight),
                "gpus": {"guaranteed": format_gpus(team.gpus.guaranteed), "limit": format_limit(team.gpus.limit)},
            }
            for team in policy.teams
        ],
        "pools": [
            {"name": pool.name, "nodeSelector": dict(pool.node_selector), "teams": sorted(pool.teams)}
            for pool in policy.pools
        ],
        "reclaim": {
            "notice": f"{policy.reclaim.notice_seconds}s",
            "protect": [{"matchLabels": {r.key: r.values[0] for r in s.requirements}}
                        for s in policy.reclaim.protected_selectors],
        },
        "queue": {"depth": policy.queue.depth, "halfLife": f"{policy.queue.half_life_seconds}s"},
        "placement": {"mode": policy.placement.mode.value},
        "workloads": {"onLimit": policy.workloads.on_limit.value},
    }  # fmt: skip
    assert loaded(back) == policy
    assert {team["name"]: team["gpus"]["limit"] == "unlimited" for team in document["teams"]} == {
        team.name: team.gpus.limit is UNLIMITED for team in policy.teams
    }


@given(documents(), st.randoms(use_true_random=False))
@examples(20)
def test_hash_does_not_depend_on_order_or_split(document, random):
    shuffled = {key: random.sample(v, len(v)) if isinstance(v, list) else v for key, v in document.items()}
    header = {key: document[key] for key in ("apiVersion", "kind")}
    files = {
        f"{name}.yaml": json.dumps({**header, name: shuffled[name]}).encode()
        for name in random.sample(["teams", "pools", "placement", "queue", "reclaim", "workloads"], 6)
    }
    assert parse(files, origin="f") == loaded(document)


def lines(content: bytes) -> list[str]:
    """Return the problems of a file: none if it is a policy."""
    try:
        parse({"f.yaml": content}, origin="f")
    except PolicyError as error:
        return [str(problem) for problem in error.problems] or [""]
    return []


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"%#\n\t <?,.0e~", max_size=80).map(str.encode))
@examples(80)
def test_any_text_is_refused_or_a_policy(content):
    assert all(line.startswith("f") and "\n" not in line for line in lines(content))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | names
FIELDS = """
    teams pools name namespaces gpus limit guaranteed models perPod defaults userFrom affinity key operator values
    tolerations effect match podSelector matchLabels placement mode keepWhole nodes reclaim protect resources exempt
    workloads kinds group kind resource pods each template replicas default onLimit
    onNoRoom weight queue queueDepth depth halfLife strictAfter
"""
fields = st.sampled_from(FIELDS.split())
trees = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(fields | names, below, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(fields, trees, max_size=4))
@examples(80)
def test_anything_below_the_right_header_is_refused_or_a_policy(body):
    document = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", **body}
    reported = lines(json.dumps(document).encode())
    assert all(line.startswith("f.yaml:") and "\n" not in line for line in reported)
