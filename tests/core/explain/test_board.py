"""What the status shows of a world: devices one by one, teams, the largest pods that fit."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import GPU, demand, gpus, node, policy, pool, requirement, resident, team, world
from webhook.cli.status.report import report_of
from webhook.cli.status.table import Look, to_lines
from webhook.core.explain.team_rows import board_of
from webhook.core.model.amounts import ONE_GPU, PODS, ResourceName, WorkloadName
from webhook.core.model.constraints import HELD, Effect, Taint, Tier, pack
from webhook.core.model.demand import PerDevice, demand_of
from webhook.core.model.node import Devices
from webhook.core.model.pod import Replica
from webhook.core.model.policy import BUILT_IN_RESOURCES, LabelSelector, ReclaimRules, Share
from webhook.core.reclaim.snapshot import rising

MEMORY = ResourceName("aliyun.com/gpu-mem")


def group(board, *, resource=GPU):
    [found] = [group for row in board.nodes for group in row.groups if group.resource == resource]
    return found


def sizes(found):
    return [(device.pieces, device.used) for device in found.devices]


def test_shares_of_memory_are_on_the_devices_that_they_have():
    resources = {**BUILT_IN_RESOURCES, MEMORY: ONE_GPU // 40}
    rules = policy(resources=resources)
    shared = node("n", gpus=0, devices=Devices(MEMORY, (40, 40)))
    shared = type(shared)(shared.name, {**shared.allocatable, MEMORY: 80}, devices=shared.devices)
    place = world(rules, [shared])
    for index, amount in ((1, 30), (0, 10)):
        demand = demand_of({MEMORY: amount, PODS: 1}, resources, per_device=PerDevice(MEMORY, amount))
        place.set_pod(resident(name=f"p{index}", node="n", demand=demand, devices=(index,)))
    board = board_of(place)
    assert sizes(group(board, resource=MEMORY)) == [(40, 10), (40, 30)]
    assert (board.free[0].free, board.free[0].largest, board.free[0].at_once) == (40, 30, 1)


def claims(*teams, residents=(), **more):
    place = world(policy(*teams, **more), [node("n0", gpus=8), node("n1", gpus=8)], list(residents))
    [row] = board_of(place).free
    return row.guaranteed_pod, row.guaranteed_at_once, row.claimants


def test_by_reclaim_only_what_is_left_of_a_share_can_be_claimed():
    borrowed = [resident(8, uid=f"u{n}", node=f"n{n}", tier="preemptible", namespace="team-b") for n in range(2)]
    idle, borrower = team(guaranteed=8, limit_=16), team("team-b", guaranteed=0)
    assert claims(idle, borrower, residents=borrowed) == (8, 1, ("team-a",))
    assert claims(team(guaranteed=4, limit_=16), borrower, residents=borrowed) == (4, 1, ("team-a",))
    assert claims(team(guaranteed=16, limit_=16, per_pod=gpus(2)), borrower, residents=borrowed) == (2, 8, ("team-a",))
    used = [resident(8, uid="own", node="n0"), resident(8, uid="u", node="n1", tier="preemptible", namespace="team-b")]
    assert claims(idle, borrower, residents=used) == (0, 0, ()), "every share is used"
    full = department("lab", limit_=3)
    below = team(guaranteed=8, limit_=16, departments=(full,))
    assert claims(below, borrower, residents=borrowed, departments=(full,)) == (3, 1, ("team-a",))
    pools = (pool("own", teams=frozenset(["team-b"])),)
    assert claims(idle, borrower, residents=borrowed, pools=pools) == (0, 0, ()), "its nodes are not open to the team"


def test_the_largest_guaranteed_pod_counts_what_reclaim_would_free():
    teams = team(guaranteed=3), team("team-b", guaranteed=0), team("team-c")
    rules = policy(*teams, reclaim=ReclaimRules(protected_namespaces=("team-b",)))
    place = world(
        rules,
        [node("n0", gpus=8), node("n1", gpus=8), node("n2", gpus=8, is_cordoned=True)],
        [
            resident(3, node="n0", tier="preemptible"),
            resident(2, node="n0"),
            resident(4, node="n1", tier="preemptible"),
            resident(3, namespace="team-b", node="n1", tier="preemptible"),
            resident(1, node="n1"),
        ],
    )
    [row] = board_of(place).free
    assert (row.largest, row.at_once) == (3, 1)
    assert (row.guaranteed_pod, row.guaranteed_at_once) == (6, 1), (
        "guaranteed and protected pods stay; cordoned nodes take no pods"
    )


def test_pods_that_policy_protects_by_labels_stay_as_the_evictor_leaves_them():
    kept = LabelSelector((requirement("app", "In", "web"),))
    rules = policy(team(guaranteed=0), team("team-c"), reclaim=ReclaimRules(protected_selectors=(kept,)))
    borrowing = {"node": "n0", "tier": "preemptible"}
    pods = [resident(3, **borrowing, packed=pack({"app": "web"})), resident(4, **borrowing)]
    [row] = board_of(world(rules, [node("n0", gpus=8)], pods)).free
    assert (row.largest, row.guaranteed_pod) == (1, 5)


def test_replicas_that_a_minimum_has_promoted_are_kept_and_those_beyond_it_could_be_claimed():
    web, away = WorkloadName("team-a/Deployment/web"), WorkloadName("team-a/Deployment/away")
    held = [
        resident(2, uid=f"w{n}", name=f"w{n}", node="n0", tier="preemptible", created=9, replica=Replica(web, 1))
        for n in range(2)
    ]
    held += [
        resident(2, uid=f"a{n}", name=f"a{n}", node="n1", tier="guaranteed", created=n, replica=Replica(away, 1))
        for n in range(2)
    ]
    held = [pod._replace(is_ready=True) for pod in held]
    place = world(
        policy(team(guaranteed=4), team("team-b", guaranteed=8)), [node("n0", gpus=4), node("n1", gpus=4)], held
    )
    assert len(rising(place)) == 1
    [row] = board_of(place).free
    assert (row.guaranteed_pod, row.claimants) == (2, ("team-b",)), "the other replica of web borrows"


def test_what_is_held_for_waiting_pods_is_not_free_for_others():
    held = node("n0", gpus=8, taints=(Taint(HELD, Effect.NO_SCHEDULE, "h"),))
    place = world(policy(team()), [held, node("n1", gpus=8)], [resident(3, node="n0"), resident(6, node="n1")])
    board = board_of(place)
    [row] = board.free
    assert [each.is_held for each in board.nodes] == [True, False]
    assert (row.pieces, row.free, row.held, row.closed) == (16, 2, 5, 0)
    assert (row.largest, row.guaranteed_pod, row.whole_nodes) == (2, 2, 0)


def test_pods_that_bypassed_the_webhook_count_as_guaranteed():
    place = world(nodes=[node("n", gpus=2)], residents=[resident(1, node="n", tier=None)])
    assert group(board_of(place)).devices[0].allocations[0].tier is Tier.GUARANTEED


def test_teams_have_borrowed_and_waiting_gpus():
    place = world(
        policy(team(models={"A100": team(guaranteed=4, limit_=6).gpus})),
        [node("n", model="A100", model_label="m")],
        [
            resident(3, name="a", node="n"),
            resident(2, name="b", node="n", tier="preemptible"),
            resident(4, name="c", tier="preemptible"),
            resident(1, name="s", namespace="stray"),
        ],
    )
    mine, stray = board_of(place, holders=1).teams
    assert (mine.used, mine.preemptible, mine.beyond_share, mine.waiting) == (gpus(9), gpus(6), 0, gpus(4))
    assert mine.holders == (("team-a/Pod/c", gpus(4)),)
    assert [(row.model, row.used, row.preemptible) for row in mine.models] == [("A100", gpus(9), gpus(6))], (
        "c may still end on it"
    )
    assert (stray.name, stray.used) == ("unassigned", gpus(1))


def departments_board():
    left = department("left", "top", guaranteed=4, limit_=9, models={"A100": Share(gpus(1), gpus(5))}, weight=3)
    tree = tree_policy(left=left, top=department("top", guaranteed=6))
    held = [
        resident(3, namespace="team-a", node="n", tier="guaranteed"),
        resident(2, namespace="team-b", node="n", tier="preemptible"),
        resident(4, namespace="team-c", tier="preemptible"),
    ]
    return board_of(world(tree, [node("n", gpus=10, model="A100", model_label="m")], held))


def test_departments_have_the_sums_of_their_teams():
    board = departments_board()
    left, top = board.departments
    assert (left.used, left.preemptible, left.beyond_share) == (gpus(5), gpus(2), gpus(1))
    assert (left.waiting, left.weight) == (0, 3)
    assert (top.used, top.preemptible, top.beyond_share, top.waiting) == (gpus(9), gpus(6), gpus(3), gpus(4))
    assert [(row.model, row.used, row.preemptible) for row in left.models] == [("A100", gpus(5), gpus(2))]


def test_the_tree_has_what_is_below_a_department_after_it():
    tree = [(depth, row.name) for depth, row in departments_board().tree()]
    assert tree == [(0, "top"), (1, "left"), (2, "team-a"), (2, "team-b"), (1, "team-c"), (0, "team-d")]


def test_the_table_shows_the_tree():
    printed = to_lines(departments_board(), Look(width=120, is_colored=False, is_wide=True), source="w")
    end = printed[0].index("  who holds")
    assert [line[:end].rstrip() for line in printed[:8]] == [
        "team        guaranteed      limit  used  preemptible  beyond share  waiting",
        "top/                 6  unlimited     9            6             3        4",
        "  left/              4          9     5            2             1        0",
        "    A100             1          5     5            2",
        "    team-a           0        100     3            0             3        0",
        "    team-b           0        100     2            2             2        0",
        "  team-c             0        100     4            4             4        4",
        "team-d               0        100     0            0             0        0",
    ]


def test_the_report_has_the_tree():
    report = to_builtins(report_of(departments_board(), []))
    assert report["departments"][0] == {
        "name": "left",
        "guaranteed": "4",
        "limit": "9",
        "used": "5",
        "reserved": "0",
        "preemptible": "2",
        "beyondShare": "1",
        "waiting": "0",
        "weight": "3",
        "models": [{"model": "A100", "guaranteed": "1", "limit": "5", "used": "5", "preemptible": "2"}],
        "parent": "top",
    }
    assert [team.get("department") for team in report["teams"]] == ["left", "left", "top", None]
    assert "departments" not in to_builtins(report_of(board_of(world()), []))


def test_nodes_are_in_natural_order():
    place = world(nodes=[node("gpu-10"), node("gpu-9"), node("a"), node("cpu", gpus=0)])
    board = board_of(place)
    assert [row.name for row in board.nodes] == ["a", "gpu-9", "gpu-10"]


@given(
    st.lists(st.tuples(st.integers(1, 10), st.booleans()), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), max_size=8),
)
def test_the_largest_job_fits_and_a_larger_one_does_not(nodes, pods):
    place = world(nodes=[node(f"n{i}", gpus=size, is_cordoned=closed) for i, (size, closed) in enumerate(nodes)])
    for number, (count, index) in enumerate(pods):
        place.set_pod(resident(count, uid=f"u{number}", node=f"n{index}", demand=demand(count, cpu=0, memory=0)))
    everywhere = place.fleet.open_bits

    def room(count):
        return place.fleet.with_room(demand(count, cpu=0, memory=0), everywhere).bit_count()

    rows = board_of(place).free
    for row in rows:
        assert room(row.largest + 1) == 0
        assert row.largest == 0 or room(row.largest) == row.at_once
        assert row.free == sum(max(0, place.fleet.free(n.name, GPU)) for n in place.fleet.nodes() if n.is_open)
