"""For one pod and one state every surface says the same.

Clusters are grown pod by pod by the webhook's own answers: with limits of teams and departments, pods in line, gangs,
held nodes and shares of GPUs. Then one more pod is asked about: at the webhook, by `review`, by the page's "Would this
run?", by `explain`, by the dry run of `doctor` and by the first step of `simulate`. After that it is there, and
`explain`, `queue`, `status`, `policy diff` and the page say what became of it.
"""

import asyncio
import json
from dataclasses import replace

from hypothesis import event, example, given, note

from tests.addons.page.support.pages import state_of
from tests.cli.support.agreeing_clusters import (
    _PLACE,
    NO_TEAMS,
    NOW,
    TEAMS,
    USER,
    Asked,
    Cluster,
    Said,
    Setup,
    manifest_of,
    setups,
)
from tests.examples import examples
from webhook.addons.page.asked import CommandAnswers
from webhook.addons.page.live.readable import Readable, line_of
from webhook.addons.page.views import decisions
from webhook.addons.page.views.teams import EVERYTHING, share_rows
from webhook.addons.simulation.cluster import PodOf, SimulatedCluster
from webhook.addons.simulation.engine import Arrivals
from webhook.addons.simulation.runs import Runs
from webhook.addons.simulation.task import Refusals, Settings, Task, TaskRecord, TaskState
from webhook.addons.viewers.nameless import Anonymizer
from webhook.addons.viewers.room_report import read_room, room_report
from webhook.cli.explain.outcome import verdict_of
from webhook.cli.explain.reclaim import ClusterDetails
from webhook.cli.explain.run import Found, explain_all
from webhook.cli.explain.subjects import PodState, find_pod, pods_of_manifests, subject_of_pod
from webhook.cli.live_cluster import COMPLETE, Coverage
from webhook.cli.policy_diff import compare
from webhook.cli.review.collect import Source, collect
from webhook.cli.review.results import WORDS, WorldFacts
from webhook.cli.review.run import ReviewWorld, evaluated
from webhook.cli.world_source import WorldObjects, world_of
from webhook.cluster.reads.listing import ReadScope
from webhook.core.explain.line_rows import EarlierWaits, QueueReader
from webhook.core.explain.team_rows import board_of
from webhook.core.model.amounts import Namespace, TeamName, Uid, gpu_number, shortened
from webhook.core.model.pod import Requester
from webhook.core.model.reasons import Code
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.starting.starts import AssumedStarts, together
from webhook.core.world.hidden_usage import Unnamed
from webhook.files import Snapshots
from webhook.kube.admission.templates import read_template
from webhook.kube.kinds.table import kind_table
from webhook.kube.nodes.nodes import MIG_STATE
from webhook.kube.objects import keys
from webhook.kube.registration.inventory import ProbeOutcome, created_probe, refused_probe


def codes_of(reasons):
    return tuple(sorted(str(reason.code) for reason in reasons))


# -- what each says of a pod that does not exist


def reviewed(cluster, manifest):
    collected = collect((Source("m", json.dumps(manifest).encode()),), namespace="default")
    opened = ReviewWorld(cluster.world(), WorldFacts("file", "w", None, 0, 0, ""), COMPLETE, is_room_known=True)
    review = evaluated(collected.entries, collected, opened, requester=Requester(USER), now_text="")
    [group] = review.workloads[0].pods
    node = group.nodes[0] if group.nodes else None
    place = group.places[0] if group.places else 0
    return Said(WORDS[group.outcome], group.tier, node, codes_of(group.reasons), place)


class InProcess(Snapshots):
    """Work on the state itself: no other viewer looks at it."""

    async def run(self, work):
        return work()


def asked_on_the_page(cluster, manifest):
    state = state_of(cluster.objects, policy=cluster.policy)
    answers = CommandAnswers(state, InProcess(), cluster=None)
    readable = Readable(state, EVERYTHING)
    found = asyncio.run(answers.review(json.dumps(manifest).encode(), readable, namespace="default", user=USER))
    [workload] = found.report["workloads"]
    [group] = workload["pods"]
    places = group["places"]
    return Said(
        group["outcome"],
        group["tier"],
        group["nodes"][0] if group["nodes"] else None,
        tuple(sorted(reason["code"] for reason in group["reasons"])),
        0 if places is None else places["first"],
    )


def read_by_viewer(cluster, namespace):
    """What a person reads who may list the pods of one namespace, and what the leader publishes."""
    made = Anonymizer(cluster.world())
    list(made.steps())
    published = read_room(room_report(made.result(), at=""))
    own = [
        each
        for each in cluster.objects
        if namespace in (each["metadata"].get("namespace"), each["metadata"]["name"]) and each["kind"] != "Node"
    ]
    pods = ReadScope("pods", is_all=False, namespaces=(namespace,))
    coverage = Coverage((pods, ReadScope("nodes", is_all=False)), room_age=1.0)
    return WorldObjects(tuple(own), coverage, Unnamed(world=published), read_at=NOW)


def explained_as_manifest(cluster, manifest, reading=None):
    reading = reading or cluster.reading
    world = world_of(reading, cluster.policy, name="w")
    kinds = kind_table(cluster.policy.workloads.kinds)
    subjects = list(pods_of_manifests([manifest], namespace="default", world=world, kinds=kinds))
    found = Found(subjects, reading, world, ClusterDetails(), "w", EarlierWaits)
    ([explained], problems) = explain_all(found, now=NOW, user=USER)
    assert problems == []
    verdict = verdict_of(explained.explanation.decision)
    [place] = _PLACE.findall(verdict.reasons[0].text) or ["0"]
    node = verdict.nodes[0] if verdict.nodes else None
    return Said(verdict.word, verdict.tier, node, codes_of(verdict.reasons), int(place))


def probed(stored, message):
    """What `doctor` says of a dry run that created this pod, or was refused."""
    if message:
        return refused_probe(403, f'admission webhook "mutate.fairgate.dev" denied the request: {message}')
    return created_probe(stored)


def simulated(cluster, manifest):
    """What the first step of a simulation does with the pod."""
    world = cluster.world()
    team = TeamName(manifest["metadata"]["namespace"])
    template = read_template(manifest, namespace=Namespace(team), world=world)
    in_cluster = SimulatedCluster(world)
    runs = Runs(in_cluster, checkpoint_seconds=0, end_at=lambda _uid, _at: None, look_at=lambda _at: None)
    arrivals = Arrivals(in_cluster, runs, Settings(refusals=Refusals.LOSE), look_at=lambda _at: None)
    pod = template.pod._replace(uid=Uid("new"))
    record = TaskRecord(Task("new", pod, team, world.now, 60, user=USER))
    arrivals.create(PodOf(record, pod.uid, pod))
    if pod.uid in arrivals.queued:
        return Said("queued", place=world.waiting.count(team))
    if record.state is TaskState.REFUSED:
        return Said("refused", codes=codes_of(record.refused))
    return Said("admitted", world.charge_of(pod.uid).tier, world.pod(pod.uid).node or world.pod(pod.uid).promised)


# -- what each says of a pod that exists


def explained(cluster, pod):
    world = cluster.world()
    found = find_pod(cluster.objects, pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
    subject = subject_of_pod(found, namespace=pod["metadata"]["namespace"], world=world)
    [one], _ = explain_all(Found([subject], cluster.reading, world, ClusterDetails(), "w", EarlierWaits), now=NOW)
    return one


def explained_on_the_page(cluster, pod):
    state = page_of(cluster)
    answers = CommandAnswers(state, InProcess(), cluster=None)
    metadata = pod["metadata"]
    return asyncio.run(answers.explain(metadata["namespace"], metadata["name"], Readable(state, EVERYTHING)))


def page_of(cluster):
    state = state_of(cluster.objects, policy=cluster.policy)
    list(state.changed_rows(state.take_dirty()))
    return state


def outcome_of(cluster, pod):
    """What the policy in force does with a pod, compared with one that refuses all; with itself nothing changes."""
    assert compare(cluster.reading, cluster.policy, cluster.policy, name="w").changes == []
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    changes = compare(cluster.reading, NO_TEAMS, cluster.policy, name="w").changes
    assert {each.old.outcome for each in changes} == {"refused"}
    waits = {f"{each.pod.namespace}/{each.pod.name}" for each in cluster.world().waiting.all()}
    has_released = any(each.pod in waits and each.new.outcome != "queued" for each in changes)
    [change] = [each for each in changes if each.pod == name]
    return change.new, has_released


def check_free(cluster):
    """What is free is the same for `status`, the page and the metrics, and nothing of it is held or closed."""
    world = cluster.world()
    state = page_of(cluster)
    weights = cluster.policy.resources
    status = {(row.model, row.resource): row.free * weights[row.resource] for row in board_of(world).free}
    stock = {(each.model, each.resource): each.free for each in gpu_inventory(world.fleet, world.policy)}
    assert status == stock
    for team in TEAMS:
        as_viewer = world_of(read_by_viewer(cluster, team), cluster.policy, name="w")
        assert board_of(as_viewer).free == board_of(world).free
    rows = list(Readable(state, EVERYTHING).rows())
    assert sum(row.free for row in rows) == gpu_number(sum(status.values()))
    closed = {each["metadata"]["name"] for each in cluster.objects if each["kind"] == "Node" and is_closed(each)}
    assert {row.node for row in rows if row.free} & closed == set()


def is_closed(node):
    spec, labels = node["spec"], node["metadata"]["labels"]
    return bool(spec.get("taints") or spec.get("unschedulable") or MIG_STATE in labels)


def check_waits(cluster, pod, said):
    """All say of a pod in line that it waits, for what, and where in line."""
    world, name = cluster.world(), pod["metadata"]["name"]
    waiting = world.waiting.get(Uid(pod["metadata"]["uid"]))
    row = QueueReader(world).row(waiting)
    team = pod["metadata"]["namespace"]
    assert row.place is not None
    assert row.place.of_team <= said.place == world.waiting.next_place(team) - 1

    as_viewer = world_of(read_by_viewer(cluster, team), cluster.policy, name="w")
    seen = {each.waiting.uid: each for each in QueueReader(as_viewer).rows()}
    assert seen.keys() == {each.uid for each in world.waiting.of(TeamName(team))}, "the others are not shown"
    assert (seen[waiting.uid].place, seen[waiting.uid].cause) == (row.place, row.cause)

    one = explained(cluster, pod)
    verdict = verdict_of(one.explanation.decision)
    assert (one.subject.existing.state, verdict.word, one.is_held_up) == (PodState.QUEUED, "queued", True)
    assert (verdict.reasons[0].code, verdict.reasons[0].text) == (row.code, f"waits: {row.cause}")
    assert one.line.place == row.place

    on_page = explained_on_the_page(cluster, pod)
    assert (on_page.state, on_page.is_queued, on_page.outcome) == ("It waits in line", True, "queued")
    assert on_page.reasons[0] == (row.code, f"waits: {row.cause}")

    [shown] = [each for each in board_of(world).teams if each.name == team]
    assert shown.queued.pods == said.place
    state = page_of(cluster)
    [line] = [each.pod for each in line_of(state, now=NOW).rows if each.pod.name == name]
    assert (line.code, line.place, line.place_in_team) == (row.code, row.place.overall, row.place.of_team)
    assert line.cause == shortened(row.cause, 300)
    assert decisions.of_pod(pod).kind == "queued"
    [share] = [each.of for each in share_rows(world, EVERYTHING) if each.of.name == team]
    assert replace(share, holders=()) == replace(shown, holders=())

    assert row.code == said.codes[0] or row.code is Code.WAITS_IN_LINE
    found, has_released = outcome_of(cluster, pod)
    event(f"in line, by policy diff: {found.outcome}")
    assert found.outcome == "queued" or row.code in (Code.WAITS_IN_LINE, Code.WAITS_FOR_GANG)
    if not has_released:  # of those behind it waits on for what is left
        assert found.reason == f"waits: {row.cause} ({row.code})"


def check_line(cluster):
    """What is said to start now is what the leader's next pass starts first of each team, and nothing else is."""
    turns = AssumedStarts(cluster.world()).due(now=NOW, count=100)
    firsts = {group[0].waiting.team: group for group in reversed(together(turns))}
    want = {turn.waiting.pod.name for group in firsts.values() for turn in group}
    world = cluster.world()
    reader = QueueReader(world, now=NOW)
    found = {row.waiting.pod.name: row for row in reader.rows()}
    event(f"start now: {len(want)} of {len(found)}" if found else "no line")
    assert {name for name, row in found.items() if row.cause.startswith(STARTS)} == want
    shown = [each.pod for each in line_of(page_of(cluster), now=NOW).rows]
    assert {each.name for each in shown if each.cause.startswith(STARTS)} == want
    again = AssumedStarts(world).due(now=NOW, count=100)
    assert [turn.waiting.uid for turn in again] == [turn.waiting.uid for turn in turns], "the world is as before"


def check_runs(cluster, before, pod, said):
    """All say of an admitted pod that it runs where it was sent, on its tier; none says that it is held up."""
    world, team = cluster.world(), pod["metadata"]["namespace"]
    gpus = world.pod(Uid(pod["metadata"]["uid"])).demand.gpus
    one = explained(cluster, pod)
    assert (one.subject.existing.node or None, one.subject.existing.tier) == (said.node, said.tier)
    assert (one.subject.existing.state is PodState.RUNNING) == (said.node is not None)
    on_page = explained_on_the_page(cluster, pod)
    assert not on_page.is_queued
    if said.node is not None:
        assert not one.is_held_up
        assert on_page.state.startswith(f"It runs on {said.node}")
    [was], [now] = ([each for each in board_of(each).teams if each.name == team] for each in (before, world))
    assert now.used - was.used == gpus
    assert now.preemptible - was.preemptible == (gpus if said.tier == "preemptible" else 0)
    assert decisions.of_pod(pod).kind == "admitted"
    state = page_of(cluster)
    rows = {row.node: row for row in Readable(state, EVERYTHING).rows()}
    assert said.node is None or pod["metadata"]["name"] in {each.name for each in rows[said.node].pods}

    found, _ = outcome_of(cluster, pod)
    assert found.outcome in {said.tier, "guaranteed"}, "an older pod may have ended, and its share is free"


STARTS = ("it may start now", "borrowed GPUs are taken back for it, with one of the next releases")
BORROWED = Setup(
    shares=((4, 2), (0, 6)),
    lab=6,
    per_user=0,
    queues=(False, False),
    depth=100,
    nodes=(8,),
    closed={},
    before=(Asked("blue", 5),),
    asked=Asked("red", 2),
)
"""A pod inside its guaranteed share that only borrowers keep out, under the limit of a department."""
PLACELESS = BORROWED._replace(
    nodes=(8, 2),
    lab=8,
    before=(Asked("blue", 2, pin=1), Asked("blue", 5), Asked("blue", 2, pin=1)),
    asked=Asked("red", 1),
    queues=(True, True),
    is_strict=True,
)
"""The first in line names a full node, and a pod of another team inside its share waits behind it."""


CHARGED = BORROWED._replace(
    lab=0,
    nodes=(4,),
    before=(Asked("blue", 4), Asked("red", 3)),
    queues=(True, True),
    is_charged=True,
)
"""The first in line is charged and keeps its gate: the next one of its team finds its share used."""


@examples(60)
@example(BORROWED)
@example(CHARGED)
@example(PLACELESS)
@given(setups)
def test_every_surface_says_the_same_of_one_pod(setup):
    cluster = Cluster(setup)
    check_free(cluster)
    manifest = manifest_of(setup.asked, "asked")
    said, stored, message = cluster.webhook(manifest)
    event(said.outcome)
    event(" ".join(said.codes))
    note(f"the webhook: {said} {message}")

    assert reviewed(cluster, manifest) == said
    assert asked_on_the_page(cluster, manifest) == said
    assert explained_as_manifest(cluster, manifest) == said
    as_viewer = explained_as_manifest(cluster, manifest, read_by_viewer(cluster, setup.asked.team))
    assert as_viewer == said, "without a right to list nodes and the pods of others"
    if not setup.is_charged:  # a simulation begins without charges in flight
        codes = said.codes if message and said.outcome != "queued" else ()
        assert simulated(cluster, manifest) == said._replace(codes=codes)
    probe = probed(stored, message)
    assert probe.reached is ProbeOutcome.YES
    assert probe.text.partition(":")[0] == (said.outcome if said.tier is None else f"admitted as {said.tier}")
    assert said.outcome != "queued" or stored["metadata"]["annotations"][keys.WAITING] in probe.text

    if said.outcome == "refused":
        return
    before = cluster.world()
    cluster.add(stored, said, 59)
    if said.outcome == "queued":
        check_waits(cluster, stored, said)
    else:
        check_runs(cluster, before, stored, said)
    check_free(cluster)
    check_line(cluster)
