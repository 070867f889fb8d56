"""A cluster in the field as a model: nodes that are lost and come back, pods that never are bound or never end.

It has the truth, as kubelets know it; Fairgate's worlds see what the API server would show of it. The leader and the
evictor are the code of the core; API server, kube-scheduler and kubelets are these few lines.

What a tenant repeats is a function in `repeats`: it is called several times in each step of what goes on by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.core.support import make
from tests.core.support.force_deleted import delete_by_force
from tests.core.support.waiting import waiting
from webhook.core.admission.admission import admit
from webhook.core.explain.line_rows import QueueReader
from webhook.core.line.judged_pod import Judged
from webhook.core.model.amounts import NodeName, TeamName, Uid, WorkloadName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Deny, Queue, lacks_room
from webhook.core.model.pod import TERMS, Handling, Obstacle, Replica, Resident, Unbound
from webhook.core.model.policy import Department, OnLimit, OnNoRoom, QueueRules, ReclaimRules, Share
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.reclaim.snapshot import pods_within_share, take_snapshot
from webhook.core.starting.line_reclaim import plan_line
from webhook.core.starting.starts import AssumedStarts
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World, lingering

NODES = ("n0", "n1", "n2")
GPUS = 4
GRACE, NOTICE, LONGEST_GRACE = 30, 5, 60
HOLD_BACK = 120
RULES = ReclaimRules(notice_seconds=NOTICE, longest_grace_seconds=LONGEST_GRACE)
LIMIT = 10
START = 1_000_000


def policy(limit=LIMIT):
    """Two teams of one department, each guaranteed 4 of its GPUs; all wait in line where they may not start."""
    above = Department("d", gpus=Share(make.gpus(8), make.gpus(limit)))
    line = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE, "departments": (above,)}
    teams = [make.team(name, guaranteed=4, limit_=limit, **line) for name in ("team-a", "team-b")]
    queue = QueueRules(hold_back_seconds=HOLD_BACK)
    return make.policy(*teams, departments=(above,), reclaim=RULES, queue=queue)


@dataclass
class FieldPod:
    """A pod as its kubelet and its owner know it. `never`: no node can take it, for another reason than full nodes."""

    uid: Uid
    team: str
    gpus: int
    created: int
    tier: str | None = None
    node: str | None = None
    promised: str | None = None
    never: bool = False
    is_tried: bool = False
    is_gated: bool = False
    wants: Tier | None = None
    deadline: int | None = None
    leave_seconds: int = 0
    minimum: int | None = None
    patches: int = 0
    """What its owner writes on it: how many replicas must stay, and what says nothing."""

    @property
    def obstacle(self):
        if self.node is not None or not self.is_tried:
            return None
        return Unbound(Obstacle.OTHER, "a volume") if self.never else Unbound(Obstacle.ROOM)


@dataclass
class Field:
    """The cluster, the leader's world and line, the evictor's world and index."""

    limit: int = LIMIT
    now: int = START
    pods: dict[Uid, FieldPod] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    first_unbound: dict[Uid, int] = field(default_factory=dict)
    count: int = 0
    repeats: list[Callable[[], None]] = field(default_factory=list)
    storming: tuple[str, ...] = ()
    evicted: dict[Uid, int] = field(default_factory=dict)
    """When each victim was first evicted."""
    lingers: dict[Uid, int] = field(default_factory=dict)
    """Until when a pod that was deleted by force stays charged."""

    def __post_init__(self):
        self.world, self.view = World(policy(self.limit)), World(policy(self.limit))
        self.index = ReclaimIndex(RULES)
        self.starts = AssumedStarts(self.world)
        for world in (self.world, self.view):
            world.tick(self.now)
        for name in NODES:
            self._show_node(name)

    # -- owners

    def create(self, team, gpus, *, wants=None, never=False):
        """A pod is created: it is refused, waits in line, or is admitted and charged."""
        self.count += 1
        uid = Uid(f"uid-p{self.count}")
        asked = waiting(f"p{self.count}", gpus, namespace=team, created=self.now, tier_label=wants and str(wants))
        decision = self._decide(asked.pod)
        if isinstance(decision, Deny):
            return None
        found = self.pods[uid] = FieldPod(uid, team, gpus, self.now, never=never, wants=wants)
        if isinstance(decision, Queue):
            found.is_gated = True
            self.world.set_waiting(asked)
            self.view.set_waiting(asked)
        elif isinstance(decision, Admit):
            self._start(found, decision)
        return found

    def _decide(self, pod):
        """The mutating step."""
        decision = admit(pod, make.ALICE, self.world)
        if lacks_room(decision) and self.world.tentative.clear(self.world.fleet):
            decision = admit(pod, make.ALICE, self.world)
        if isinstance(decision, Admit) and decision.node_choice.nodes:
            self.world.tentative.reserve(self.world.fleet, decision.node_choice.nodes[0], pod, now=self.world.now)
        return decision

    def advise(self, team, gpus):
        """A pod passes the mutating step, and something after it refuses it."""
        self.count += 1
        self._decide(waiting(f"p{self.count}", gpus, namespace=team, created=self.now).pod)

    def force_delete(self, pod):
        """The object is gone at once; the pod stays charged for as long as its node may run it."""
        left = lingering(pod.uid, self.world, is_watched=True)
        self._forget(pod)
        if left is not None:
            self.lingers[left.pod.uid] = self.now + left.lingers
            for world in (self.world, self.view):
                world.assume(left)

    def create_again(self, pod):
        """Its owner deletes a pod and creates it again; returns the new one, None if it is refused."""
        if pod.uid in self.pods:
            if pod.node is None:
                self._forget(pod)
            else:
                self.delete(pod)
        return self.create(pod.team, pod.gpus, wants=pod.wants, never=pod.never)

    def patch(self, pod):
        """Its owner writes something on it: it has another resourceVersion."""
        pod.patches += 1
        self._show(pod)

    def flip_minimum(self, pod):
        """Its owner says that three pods of its workload must stay, and then one, by turns."""
        pod.minimum = 1 if pod.minimum == 3 else 3
        self._show(pod)

    def flip(self, pod):
        """Something keeps a pod off every node, or no longer does."""
        pod.never = not pod.never
        self._show(pod)

    def delete(self, pod, grace=GRACE):
        """An owner deletes a pod, or the API server does for the evictor."""
        if pod.is_gated:
            self._forget(pod)
        else:
            if pod.deadline is None or self.now + grace < pod.deadline:
                pod.deadline, pod.leave_seconds = self.now + grace, grace
            self._show(pod)

    def storm(self):
        """Owners create pods on a node and delete them by force before its kubelet has them, as many as are let in."""
        for team in self.storming:
            asked = make.pod(1, namespace=team, handling=Handling.NODE_NAME, node_name=NodeName(NODES[0]))
            while not isinstance(admit(asked, make.ALICE, self.world), Deny):
                self.count += 1
                uid = f"uid-g{self.count}"
                of = {"tier": None, "node": NODES[0], "is_acknowledged": False, "created": self.now}
                ghost = make.resident(1, uid=uid, namespace=team, **of)
                for world in (self.world, self.view):
                    for left in delete_by_force(world, ghost):
                        self.lingers[left.pod.uid] = self.now + left.lingers

    def mend(self, pod):
        """What kept a pod off every node is there now."""
        pod.never = False
        self._show(pod)

    # -- nodes

    def lose(self, name):
        self.lost.add(name)
        self._show_node(name)

    def remove(self, name):
        self.gone.add(name)
        for world in (self.world, self.view):
            world.remove_node(NodeName(name))

    def bring_back(self, name):
        self.lost.discard(name)
        self.gone.discard(name)
        self._show_node(name)

    def reject(self, pod):
        """A kubelet rejects a pod that it was given, or it fails."""
        self._forget(pod)

    # -- what goes on by itself

    def wait(self, seconds):
        self.now += seconds
        for world in (self.world, self.view):
            world.tick(self.now)
        for uid in [uid for uid, until in self.lingers.items() if until <= self.now]:
            del self.lingers[uid]
            for world in (self.world, self.view):
                world.drop_reservation(uid)
            self.storm()

    def schedule(self):
        """kube-scheduler tries each pod once: those inside shares first, then the oldest; the first node with room."""
        order = sorted(self.pods.values(), key=lambda pod: (pod.tier != "guaranteed", pod.created, pod.uid))
        for pod in order:
            if pod.node is None and not pod.is_gated and pod.deadline is None:
                free = [name for name in self.healthy() if self.room(name) >= pod.gpus]
                wanted = [name for name in free if name == pod.promised] or free
                pod.is_tried = True
                if wanted and not pod.never:
                    pod.node = wanted[0]
                self._show(pod)

    def end_due(self):
        """Healthy kubelets end what was deleted and had its time; the API server removes what never had a node."""
        for pod in list(self.pods.values()):
            is_over = pod.deadline is not None and pod.deadline <= self.now
            if is_over and (pod.node is None or pod.node in self.healthy()):
                self._forget(pod)

    def release(self):
        """The leader looks at the line once; what explanations say of the first in it comes true."""
        first = self.said_to_start()
        turns = self.starts.due(now=self.now, count=100)
        assert first is None or first in [turn.waiting.uid for turn in turns], "the first, which may start now, starts"
        for turn in turns:
            pod = self.pods[turn.waiting.uid]
            self.starts._open.pop(pod.uid, None)
            pod.is_gated = False
            self.view.remove_pod(pod.uid)
            self._start(pod, turn.admit)

    def reclaim(self):
        """The evictor looks once: what it plans is evicted after the notice, which has passed."""
        self.index.expire(before=self.now)

        def snapshot():
            return take_snapshot(self.index, self.view, now=self.now)

        asking = [each for each in pods_within_share(self.index, self.view) if each.report and each.report.is_for_room]
        in_line = plan_line(self.view, self.index, snapshot).moves
        self._mark({move.waiting.uid for move in in_line})
        moves = [*plan(asking, snapshot()).moves, *in_line]
        for victim in dict.fromkeys(victim for move in moves for victim in move.victims):
            pod = self.pods[victim.uid]
            assert pod.tier == "preemptible", "no guaranteed pod is evicted"
            self.evicted.setdefault(pod.uid, self.now)
            self.delete(pod, min(LONGEST_GRACE, 0 if pod.node is None else GRACE))

    def change_tiers(self):
        """The leader makes the tiers match the shares."""
        for team in self.world.policy.teams:
            for change in tier_changes(team, self.world):
                pod = self.pods[change.pod.uid]
                pod.tier = str(change.charge.tier)
                self._show(pod)

    def live(self, seconds, *, step=5):
        """Everything that goes on by itself does, for so long."""
        for _ in range(0, seconds, step):
            for what in (self.storm, self.end_due, self.schedule, self.release, self.change_tiers, self.reclaim):
                what()
                for again in self.repeats:
                    again()
            self.wait(step)

    def _mark(self, keeping):
        """The evictor has room kept for the pods in line that it makes it for."""
        for each in [*self.world.waiting.all()]:
            if each.keeps_room is not (each.uid in keeping):
                for world in (self.world, self.view):
                    world.set_waiting(replace(each, keeps_room=each.uid in keeping))

    # -- what is true

    def healthy(self):
        return [name for name in NODES if name not in self.lost and name not in self.gone]

    def room(self, name):
        """What a kubelet has not handed out."""
        return GPUS - sum(pod.gpus for pod in self.pods.values() if pod.node == name)

    def held(self, team):
        """What kubelets may have handed out to a team, those of lost nodes past their deadlines left out."""
        return sum(
            pod.gpus
            for pod in self.pods.values()
            if pod.team == team and pod.node is not None and not self.is_written_off(pod)
        )

    def is_written_off(self, pod):
        return pod.deadline is not None and pod.deadline < self.now and pod.node not in self.healthy()

    # -- what the API server shows

    def _start(self, pod, admit):
        pod.tier, nodes = str(admit.charge.tier), admit.node_choice.nodes
        pod.promised = nodes[0] if nodes else None
        self.first_unbound[pod.uid] = self.now
        self._show(pod)
        self.world.drop_reservation(pod.uid)

    def _show(self, pod):
        if pod.is_gated:
            return
        is_deleted = pod.deadline is not None
        found = make.resident(
            pod.gpus,
            uid=pod.uid,
            namespace=pod.team,
            tier=pod.tier,
            node=pod.node,
            promised=None if pod.node else pod.promised,
            unbound=pod.obstacle,
            is_terminating=is_deleted,
            deadline=pod.deadline or 0,
            created=pod.created,
            requested_tier=pod.wants,
            replica=Replica(WorkloadName(f"{pod.team}/{int(pod.uid[5:]) % 2}"), pod.minimum),
            version=pod.patches,
            is_ready=pod.node is not None,
        )
        self.world.set_pod(found)
        self.view.set_pod(found._replace(promised=None))
        self.index.set(self._reclaim_pod(found._replace(promised=None), pod))

    def _reclaim_pod(self, found: Resident, pod: FieldPod) -> ReclaimPod:
        report = None if pod.obstacle is None else SchedulerReport(pod.created, is_for_room=not pod.never)
        is_deleted = pod.deadline is not None
        leaves = {"leaves_at": pod.deadline, "leave_seconds": pod.leave_seconds} if is_deleted else {}
        return ReclaimPod(
            found, report=report, started_at=pod.created if pod.node else 0, grace_seconds=GRACE, **leaves
        )

    def _forget(self, pod):
        del self.pods[pod.uid]
        for world in (self.world, self.view):
            world.remove_pod(pod.uid)
        self.index.remove(pod.uid)

    def _show_node(self, name):
        found = replace(make.node(name, gpus=GPUS), is_ready=name not in self.lost)
        for world in (self.world, self.view):
            world.set_node(found)

    # -- invariants

    def why_waiting(self):
        """What the leader says of each pod in line, for messages."""
        blocked: dict[Uid, Judged] = self.starts.blocked
        return {uid: judged.reason.text for uid, judged in blocked.items()}

    def said_to_start(self):
        """The first pod in line, if explanations say that it may start now."""
        rows = QueueReader(self.world, now=self.now).rows()
        starts = rows and rows[0].place is not None and rows[0].place.overall == 1 and not rows[0].needs_evictor
        return rows[0].waiting.uid if starts and rows[0].cause.startswith("it starts within seconds") else None

    def starved(self):
        """Pods in line or unbound, inside their team's share, that would fit if all borrowers were gone."""
        owned = dict.fromkeys(("team-a", "team-b"), 0)
        for pod in self.pods.values():
            if pod.tier == "guaranteed" and not (pod.node is None and pod.deadline is not None):
                owned[pod.team] += 0 if self.is_written_off(pod) else pod.gpus
        found = []
        for pod in sorted(self.pods.values(), key=lambda pod: (pod.created, int(pod.uid[5:]))):
            is_unbound = pod.tier == "guaranteed" and pod.node is None
            if pod.deadline is not None or pod.never or not (pod.is_gated or is_unbound):
                continue
            if pod.wants is Tier.PREEMPTIBLE:
                continue
            own = owned[pod.team] - (pod.gpus if is_unbound else 0)
            fits = any(self._room_without_borrowers(name, pod) >= pod.gpus for name in self.healthy())
            if own + pod.gpus <= 4 and fits:
                found.append(pod)
                break  # those behind it wait for it
        return found

    def _room_without_borrowers(self, name, asking):
        return GPUS - sum(
            pod.gpus
            for pod in self.pods.values()
            if pod is not asking and pod.node == name and (pod.tier == "guaranteed" or pod.node not in self.healthy())
        )

    def _taken(self, name):
        """What pods take on a node, and what is kept there for those that may come or were deleted by force."""
        uids = [*self.pods, *self.lingers]
        there = [self.world.pod(uid).demand for uid in uids if self.world.node_of(uid) == name]
        teams = [team.name for team in self.world.policy.teams]
        placed = [each for team in teams for each in self.world.tentative.placed(team) if each.node == name]
        return sum(int(each.devices[0][1]) for each in [*there, *(each.pod.demand for each in placed)])

    def check_nothing_is_promised(self):
        """All that was kept for pods without a node has ended."""
        for name in self.healthy():
            free = self.world.fleet.free(NodeName(name), make.GPU)
            assert free == self.room(name), f"{name} has {free} of {self.room(name)} GPUs free"

    def check(self):
        """The invariants that hold at every moment."""
        for team in ("team-a", "team-b"):
            assert self.world.usage(TeamName(team)).total >= make.gpus(self.held(team)), "charged at least what is held"
        for name in NODES:
            if name in self.gone:
                continue
            assert GPUS - self.world.fleet.free(NodeName(name), make.GPU) == self._taken(name), "devices are taken once"
        for pod in self.pods.values():
            if pod.node is not None:
                assert self.world.node_of(pod.uid) == pod.node
            elif self.world.node_of(pod.uid) is not None:
                bound = 300 + NOTICE + LONGEST_GRACE + 330
                assert self.now - self.first_unbound[pod.uid] <= bound, "every promise ends"
            stage = self.world.stages.of(pod.uid)
            if stage is not None and pod.uid in self.pods:
                charge = self.world.charge_of(pod.uid)
                assert (charge is not None) == TERMS[stage].is_charged
