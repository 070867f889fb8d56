"""What a viewer gets on any route is in what the API server would have shown them: whatever is there, and may be read.

The attacker is a person with a valid token who may list pods in some namespaces, asks every address, and looks for
names of others. Every name in a generated cluster is unlike all others, so that it is found in any text.
"""

import json
import re
from itertools import product
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.addons.page.support.pages import FORM, decided, named, policy_of, served, state_of, waiting
from tests.examples import examples
from webhook.addons.page.views import decisions
from webhook.addons.page.views.teams import Viewer

NAMESPACES = ("ns-ada", "ns-bob", "ns-cyd", "ns-dot")
TEAMS = {"squad-one": ("ns-ada", "ns-bob"), "squad-two": ("ns-cyd",)}  # ns-dot has none
POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
departments: [{name: dep-all, gpus: {guaranteed: 8, limit: 14}}]
defaults: {onLimit: queue, onNoRoom: queue}
teams:
  - {name: squad-one, department: dep-all, namespaces: [ns-ada, ns-bob], gpus: {guaranteed: 4, limit: 8}}
  - {name: squad-two, department: dep-all, namespaces: [ns-cyd], gpus: {guaranteed: 4, limit: 12}}
pools:
  - {name: pool-both, nodeSelector: {kind: big}}
  - {name: pool-two, nodeSelector: {kind: small}, teams: [squad-two]}
"""
MANIFEST = json.dumps(b.pod("mine", namespace=None, gpus=4))
MARKER = re.compile(r"\b(?:ns|squad|dep|pool|node|zone|model|pod|wait|job|user|said)-[a-z0-9-]*[a-z0-9]")


class Here:
    """Work on snapshots without processes of their own: each test has a state of its own."""

    async def run(self, work):
        return work()


class OneViewer:
    """An authenticator through which one viewer comes."""

    takes_tokens = True

    def __init__(self, viewer):
        self._viewer = viewer

    async def viewer(self, _caller):
        return self._viewer


def node(number, *, kind):
    labels = {"kind": kind, "topology.kubernetes.io/zone": f"zone-{number}"}
    held = {"fairgate.dev/hold": json.dumps({"beneficiaries": []})}
    made = b.node(f"node-{number}", gpus=8, model=f"model-{number}", labels=labels)
    made["metadata"]["annotations"] = held
    return made


def pod(namespace, number, *, gpus, on, tier):
    short, team = namespace.removeprefix("ns-"), team_of(namespace)
    labels = {"fairgate.dev/team": team, "fairgate.dev/tier": tier} if team else {}
    made = b.pod(
        f"pod-{short}-{number}",
        namespace=namespace,
        gpus=gpus,
        node=on,
        controller=("Job", f"job-{short}-{number}"),
        labels=labels,
        annotations={},
    )
    decided(made, gpus=str(gpus), node=on or "")
    decision = json.loads(made["metadata"]["annotations"]["fairgate.dev/decision"])
    decision["user"] = f"user-{short}"
    made["metadata"]["annotations"]["fairgate.dev/decision"] = json.dumps(decision)
    return made


def queued(namespace, number, *, gpus):
    made = waiting(f"wait-{namespace.removeprefix('ns-')}-{number}", namespace=namespace, gpus=gpus)
    made["metadata"]["labels"]["fairgate.dev/team"] = team_of(namespace)
    return made


def team_of(namespace):
    return next((team for team, names in TEAMS.items() if namespace in names), "")


def event(namespace, reason):
    short = namespace.removeprefix("ns-")
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"e-{short}-{reason}",
            "creationTimestamp": "2026-11-22T10:00:00Z",
        },
        "source": {"component": "fairgate-evictor"},
        "reason": reason,
        "message": f"said-{short} for pod-of-{short}",
        "involvedObject": {"kind": "Pod", "name": f"pod-{short}-0"},
    }


PODS = st.builds(
    pod,
    st.sampled_from(NAMESPACES),
    st.integers(0, 3),
    gpus=st.sampled_from([1, 2, 4]),
    on=st.sampled_from(["node-1", "node-2", "node-3", None]),
    tier=st.sampled_from(["guaranteed", "preemptible"]),
)
QUEUED = st.builds(queued, st.sampled_from(NAMESPACES[:3]), st.integers(0, 2), gpus=st.sampled_from([2, 8, 16]))
SCALED = st.builds(
    lambda namespace, number: b.autoscaler(
        f"job-{namespace.removeprefix('ns-')}-{number}", namespace=namespace, kind="Job"
    ),
    st.sampled_from(NAMESPACES),
    st.integers(0, 3),
)
EVENTS = st.builds(event, st.sampled_from(NAMESPACES), st.sampled_from(["Reclaimed", "Refused", "EvictionPlanned"]))
SOME = st.frozensets(st.sampled_from(NAMESPACES))
VIEWERS = st.builds(
    lambda pods, nodes, events: Viewer("nina", pods, nodes=nodes, events=events),
    st.one_of(SOME.filter(bool), st.none()),
    st.booleans(),
    st.one_of(SOME, st.none()),
)


def unique(objects):
    return list({(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects}.values())


def cluster(pods, events=(), *, nodes=None):
    """A state of these pods and Events, on three nodes."""
    nodes = nodes or [node(1, kind="big"), node(2, kind="small"), node(3, kind="other")]
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    state = state_of(named([*names, *nodes, *unique(pods)]), policy=policy_of(POLICY))
    for each in events:
        state.decisions.add(decisions.of_event(each))
    return state


def answers(state, viewer, asked):
    """The body of every address, with what stands for one viewer's asking about every pod."""
    bodies = {}
    with served(state, authenticator=OneViewer(viewer), snapshots=Here()) as site:
        paths = ["/", "/map.json", "/teams", "/queue", "/decisions", "/moves", "/review", "/search?q=-"]
        paths += ["/decisions?kind=evicted"]
        paths += [f"/search?q={each}" for each in ("node-1", "user", "job")]
        paths += [f"/explain?namespace={quote(namespace)}&name={quote(name)}" for namespace, name in asked]
        for path in paths:
            status, body = site.get(path)
            assert status in (200, 404), (path, body)
            bodies[path] = body
        for namespace in NAMESPACES:
            form = urlencode({"manifest": MANIFEST, "namespace": namespace, "user": "nina"})
            status, _, bodies[f"review in {namespace}"] = site.request(
                "/review", method="POST", body=form, headers=FORM
            )
            assert status == 200
    return bodies


def shown_by_the_api(viewer, pods, events, nodes):
    """All text of what the API server lists for a viewer, and what every refusal says of their own teams."""
    teams = [team for team, names in TEAMS.items() if any(map(viewer.sees, names))]
    parts = [each for each in pods if viewer.sees(each["metadata"]["namespace"])]
    parts += [each for each in events if viewer.sees_events(each["metadata"]["namespace"])]
    parts += [{"namespace": name} for name in NAMESPACES if viewer.sees(name)]
    parts += nodes if viewer.nodes else []
    parts += [{"team": team, "pools": ["pool-both", *(["pool-two"] if team == "squad-two" else [])]} for team in teams]
    parts += [POLICY] if viewer.sees_all_pods else []
    return json.dumps(parts)


@pytest.mark.slow
@given(st.lists(PODS | QUEUED | SCALED, max_size=10), st.lists(EVENTS, max_size=4), VIEWERS)
@examples(15)
def test_no_answer_has_a_name_that_the_api_server_would_not_have_shown(pods, events, viewer):
    pods = unique(pods)
    nodes = [node(1, kind="big"), node(2, kind="small"), node(3, kind="other")]
    asked = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in pods]
    shown = set(MARKER.findall(shown_by_the_api(viewer, pods, events, nodes)))
    for path, body in answers(cluster(pods, events, nodes=nodes), viewer, asked).items():
        asked_for = set(MARKER.findall(path))  # pages repeat the question
        assert set(MARKER.findall(body)) <= shown | asked_for, path


@pytest.mark.slow
@given(
    st.lists(PODS | QUEUED, max_size=8),
    st.lists(PODS | QUEUED | SCALED, max_size=6),
    st.lists(EVENTS, max_size=3),
    st.booleans(),
)
@examples(8)
def test_what_others_do_changes_no_answer(pods, others, events, nodes):
    """Two clusters that differ in what a viewer may not read: the answers are the same."""
    own = NAMESPACES[:2]  # all of squad-one
    viewer = Viewer("nina", frozenset(own), nodes=nodes, events=frozenset(own))
    mine = unique(each for each in pods if each["metadata"]["namespace"] in own)
    theirs = [each for each in others if each["metadata"]["namespace"] not in own]
    asked = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in mine]
    heard = [each for each in events if each["metadata"]["namespace"] in own]
    changed = None if nodes else [node(1, kind="small"), node(2, kind="big"), node(3, kind="big")]
    without = answers(cluster(mine, heard), viewer, asked)
    with_others = answers(cluster([*mine, *theirs], events, nodes=changed), viewer, asked)
    for path in without:
        assert re.sub(r'"sequence":\d+', "", with_others[path]) == re.sub(r'"sequence":\d+', "", without[path]), path


VICTIM = pod("ns-cyd", 0, gpus=8, on="node-1", tier="preemptible")
WAITS = {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}}
BENEFICIARY = pod("ns-ada", 0, gpus=4, on=None, tier="guaranteed") | WAITS


@pytest.mark.parametrize(("nodes", "path"), [*product([False, True], ["explain", "line"])])
def test_an_own_pod_that_waits_names_no_victim_and_no_node(nodes, path):
    state = cluster([VICTIM, BENEFICIARY, queued("ns-ada", 1, gpus=8)])
    viewer = Viewer("nina", frozenset({"ns-ada"}), nodes=nodes)
    addresses = {"explain": "/explain?namespace=ns-ada&name=pod-ada-0", "line": "/queue"}
    with served(state, authenticator=OneViewer(viewer)) as site:
        status, body = site.get(addresses[path])
    assert status == 200
    assert "ada-" in body
    for hidden in ("ns-cyd", "pod-cyd-0", "squad-two", "user-cyd", "node-1", "node-2", "node-3", "dep-all", "pool-two"):
        assert hidden not in body


def test_who_may_list_all_still_reads_victims_and_nodes():
    state = cluster([VICTIM, BENEFICIARY])
    with served(state, authenticator=OneViewer(Viewer("root", None, nodes=True, events=None))) as site:
        status, body = site.get("/explain?namespace=ns-ada&name=pod-ada-0")
    assert status == 200
    assert "node-1" in body
    assert "department dep-all" in body
