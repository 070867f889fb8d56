"""What `fairgate status` shows: teams, nodes, a picture of GPUs.

Shows each GPU of a node as one or two characters: its team, tier and usage. Readable without color.

A GPU that one pod has is the letter of its team: upper case if the pod is guaranteed, lower case if it borrows. A
shared GPU is the letter of the team with the largest part, and a bar for its usage. What cannot be used because other
devices have its counters is a dash.
"""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Annotated, Final

import msgspec
from rich.text import Text

from webhook.cli.queue.rows import HolderReport
from webhook.core.explain.node_rows import DeviceGroup, DeviceRow, HeldPart, NodeRow
from webhook.core.explain.team_rows import Board, DepartmentRow, FreeRow, MinimumRow, ModelRow, TeamRow, amounts
from webhook.core.model.amounts import TeamName, format_gpus
from webhook.core.model.constraints import Tier
from webhook.kube.ledger.reports import written_at

_COLORS: Final = ("cyan", "yellow", "green", "magenta", "blue", "red")
_BARS: Final = "▁▂▃▄▅▆▇█"
_DIGITS: Final = "12345678"
_SHUT: Final = "-"
_MORE: Final = "äöüåñçéøæþðγδθλξπσφψωбджийцчшщыэюя"
"""Letters of the 27th to the 60th team, which look like none before them in either case."""

_OTHER: Final = "#"
"""The letter of all teams beyond: the 26th where a terminal supports only ASCII."""


class GpuPicture:
    """Draws devices with a letter and a color per team. `is_plain`: for terminals that support only ASCII."""

    def __init__(self, teams: Iterable[TeamName], *, is_plain: bool = False) -> None:
        self._letters = _assign_letters(teams, ascii_lowercase if is_plain else ascii_lowercase + _MORE)
        self._free, self._bars = (".", _DIGITS) if is_plain else ("·", _BARS)

    @property
    def letters(self) -> Mapping[TeamName, str]:
        """The lower-case letter of each team."""
        return self._letters

    def group(self, group: DeviceGroup) -> Text:
        """Draw all devices of a group; shared ones are separated by spaces."""
        is_shared = any(device.pieces > 1 for device in group.devices)
        cells = [self._shared(device) if is_shared else self._whole(device) for device in group.devices]
        over = [Text(f"+{group.over} over", style="bold red")] if group.over else []
        drawn = Text(" " if is_shared else "").join(cells)
        return Text(" ").join([drawn, *over]) if over else drawn

    def legend(self, nodes: Iterable[NodeRow]) -> Text:
        """Explain the letters, and the dashes if these nodes have some."""
        teams = Text(", ").join(
            Text.assemble((letter.upper(), self._style(team, Tier.GUARANTEED)), f" {team}")
            for team, letter in self._letters.items()
        )
        rest = f"upper case guaranteed, lower preemptible, {self._free} free"
        is_shut = any(device.shut for node in nodes for group in node.groups for device in group.devices)
        return Text.assemble(teams, "; ", rest, f", {_SHUT} taken with others" if is_shut else "")

    def _whole(self, device: DeviceRow) -> Text:
        if not device.allocations:
            return self._empty(device)
        [allocation] = device.allocations
        return Text(self._letter(allocation), style=self._style(allocation.team, allocation.tier))

    def _shared(self, device: DeviceRow) -> Text:
        if not device.allocations:
            return Text("").join([self._empty(device)] * 2)
        most = _largest(device.allocations)
        level = min(len(self._bars), -(-device.used * len(self._bars) // max(1, device.pieces)))
        bar = self._bars[level - 1]
        teams = {allocation.team for allocation in device.allocations}
        letter = self._letter(most) if len(teams) == 1 else "*"
        return Text.assemble((letter, self._style(most.team, most.tier)), (bar, self._color(most.team)))

    def _empty(self, device: DeviceRow) -> Text:
        return Text(_SHUT if device.shut == device.pieces else self._free, style="dim")

    def _letter(self, allocation: HeldPart) -> str:
        letter = self._letters.get(allocation.team, _OTHER)
        return letter.upper() if allocation.tier is Tier.GUARANTEED else letter

    def _color(self, team: TeamName) -> str:
        numbers = {name: number for number, name in enumerate(self._letters)}
        return _COLORS[numbers.get(team, 0) % len(_COLORS)]

    def _style(self, team: TeamName, tier: Tier) -> str:
        """Guaranteed GPUs have the team's color as background, preemptible ones as foreground."""
        color = self._color(team)
        return f"black on {color}" if tier is Tier.GUARANTEED else color


def _largest(allocations: tuple[HeldPart, ...]) -> HeldPart:
    """Return an allocation of the team and tier with the largest part of a device."""
    sums: dict[tuple[TeamName, Tier], int] = {}
    for allocation in allocations:
        sums[allocation.team, allocation.tier] = sums.get((allocation.team, allocation.tier), 0) + allocation.pieces
    team, tier = max(sums, key=lambda key: (sums[key], key))
    return next(allocation for allocation in allocations if (allocation.team, allocation.tier) == (team, tier))


def _assign_letters(teams: Iterable[TeamName], letters: str) -> dict[TeamName, str]:
    """Return a letter per team: the first unused one of its name, otherwise any unused one."""
    left = dict.fromkeys(letters)
    found: dict[TeamName, str] = {}
    for team in teams:
        letter = next((each for each in (*team.lower(), *left) if each in left), _OTHER)
        left.pop(letter, None)
        found[team] = letter
    return found


# The status as data: the stable format of `-o json` and `-o yaml`.


_GPUS = "GPUs, as in 2, 0.5 or 3/7"


class ModelReport(msgspec.Struct, rename="camel"):
    """The share and usage of one GPU model."""

    model: str
    guaranteed: str
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    used: str
    preemptible: str


class DepartmentReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """The share and usage of all teams below a department."""

    name: str
    guaranteed: Annotated[str, msgspec.Meta(description=_GPUS)]
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    used: Annotated[str, msgspec.Meta(description="everything charged, whatever its tier, on a node or not")]
    reserved: Annotated[str, msgspec.Meta(description="the part of it of pods that are not seen, or still queued")]
    preemptible: Annotated[str, msgspec.Meta(description="the part of it that may be evicted")]
    beyond_share: Annotated[str, msgspec.Meta(description="the part of it beyond the guaranteed share")]
    waiting: Annotated[str, msgspec.Meta(description="the part of it of pods without a node")]
    weight: Annotated[str, msgspec.Meta(description="its part of the surplus, relative to others of its parent")]
    models: list[ModelReport]
    parent: Annotated[str, msgspec.Meta(description="the department above it; left out at the top")] = ""


class TeamReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """A team's share and usage."""

    name: str
    guaranteed: Annotated[str, msgspec.Meta(description=_GPUS)]
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    used: Annotated[str, msgspec.Meta(description="everything charged, whatever its tier, on a node or not")]
    reserved: Annotated[str, msgspec.Meta(description="the part of it of pods that are not seen, or still queued")]
    preemptible: Annotated[str, msgspec.Meta(description="the part of it that may be evicted")]
    beyond_share: Annotated[str, msgspec.Meta(description="the part of it beyond the guaranteed share")]
    waiting: Annotated[str, msgspec.Meta(description="the part of it of pods without a node")]
    holders: Annotated[list[HolderReport], msgspec.Meta(description="largest first")]
    models: list[ModelReport]
    department: Annotated[str, msgspec.Meta(description="the department above it; left out where there is none")] = ""
    queued: Annotated[int, msgspec.Meta(description="queued pods, uncharged; left out if there are none")] = 0
    queued_gpus: Annotated[str, msgspec.Meta(description="what they ask for; left out if there are none")] = ""
    idle: Annotated[str, msgspec.Meta(description="what pods hold and do not use; left out if there is none")] = ""
    starting: Annotated[
        int, msgspec.Meta(description="charged pods that stay queued until their GPUs are free; left out if none")
    ] = 0
    starting_gpus: Annotated[str, msgspec.Meta(description="the part of `used` of these; left out if none")] = ""


class DeviceReport(msgspec.Struct, omit_defaults=True):
    """One GPU, or one instance of a partitioned GPU."""

    pieces: Annotated[int, msgspec.Meta(description="1 for a whole GPU, otherwise its number of shares")]
    holders: list[HeldPart]
    shut: Annotated[
        int, msgspec.Meta(description="pieces that cannot be used, as other devices have their counters; left out if 0")
    ] = 0


class DeviceGroupReport(msgspec.Struct, rename="camel"):
    """The devices of one resource on a node, in pieces of that resource."""

    resource: str
    pieces: int
    used: int
    devices: list[DeviceReport]
    is_exact: Annotated[bool, msgspec.Meta(description="false: the pods' real devices are not known; shown by name")]


class RejectingReport(msgspec.Struct):
    """What a node did with the pods of a team: it rejected the last of them, and the team keeps off it."""

    team: str
    rejections: Annotated[int, msgspec.Meta(description="in a row")]
    reason: Annotated[str, msgspec.Meta(description="the last one, as kubelet names it")]
    until: Annotated[str, msgspec.Meta(description="until when no pod of the team is placed there, then one at a time")]


class NodeReport(msgspec.Struct, omit_defaults=True):
    """A node with GPUs."""

    name: str
    model: Annotated[str, msgspec.Meta(description="empty if the node has no label for it")]
    state: Annotated[
        str,
        msgspec.Meta(
            description="empty, or why it takes no pods: not ready, cordoned, its GPUs or driver are being changed"
        ),
    ]
    gpus: list[DeviceGroupReport]
    rejecting: Annotated[list[RejectingReport], msgspec.Meta(description="left out if it rejects no pods")] = []
    held: Annotated[
        bool, msgspec.Meta(description="its free GPUs are reserved for waiting pods; left out if they are not")
    ] = False
    arriving: Annotated[
        list[str], msgspec.Meta(description="pods that are moved here; left out if there are none")
    ] = []


class FreeReport(msgspec.Struct, rename="camel"):
    """Free pieces of one resource and model; only GPUs count, cpu and memory do not."""

    resource: str
    model: str
    pieces: int
    free: Annotated[int, msgspec.Meta(description="on nodes that take pods, and are reserved for none")]
    largest_pod: Annotated[int, msgspec.Meta(description="the largest pod that a node could take now")]
    at_once: Annotated[int, msgspec.Meta(description="how many such pods the nodes could take now")]
    largest_guaranteed_pod: Annotated[
        int, msgspec.Meta(description="the largest guaranteed pod that a team could claim on one node, by reclaim")
    ]
    guaranteed_at_once: Annotated[int, msgspec.Meta(description="how many such pods one team could claim")]
    claimants: Annotated[list[str], msgspec.Meta(description="the teams that could claim one")]
    whole_nodes: Annotated[int, msgspec.Meta(description="nodes that take pods and have no GPU pods")]
    closed: Annotated[int, msgspec.Meta(description="free on nodes that take no pods")]
    held: Annotated[int, msgspec.Meta(description="free on nodes where they are reserved for waiting pods")]


class UnusualReport(msgspec.Struct):
    """GPU pods whose charge may surprise, at one stage of their lives."""

    stage: Annotated[str, msgspec.Meta(description="stalled, overdue, lost or lingering")]
    pods: Annotated[list[str], msgspec.Meta(description="NAMESPACE/NAME")]
    gpus: Annotated[str, msgspec.Meta(description=_GPUS)]
    message: str


class IdleReport(msgspec.Struct):
    """A pod that holds GPUs and does not use them."""

    pod: Annotated[str, msgspec.Meta(description="NAMESPACE/NAME")]
    team: str
    tier: str
    gpus: Annotated[str, msgspec.Meta(description=_GPUS)]
    since: str


class MinimumReport(msgspec.Struct):
    """A workload that is to keep some replicas."""

    workload: Annotated[str, msgspec.Meta(description="NAMESPACE/KIND/NAME")]
    team: str
    minimum: int
    pods: Annotated[int, msgspec.Meta(description="that exist or are queued; the minimum counts if they are more")]
    ready: int
    spare: Annotated[int, msgspec.Meta(description="ready ones that may go before other pods")]
    state: str


class StatusReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """The output of `fairgate status`."""

    teams: list[TeamReport]
    nodes: list[NodeReport]
    free: Annotated[list[FreeReport], msgspec.Meta(description="empty if not all nodes and pods could be read")]
    left_out: Annotated[
        list[str], msgspec.Meta(description="what the user may not read, and which right would show it")
    ]
    departments: Annotated[
        list[DepartmentReport], msgspec.Meta(description="by name; left out where policy has none")
    ] = []
    unusual: Annotated[
        list[UnusualReport], msgspec.Meta(description="pods whose charge may surprise; left out if there are none")
    ] = []
    idle: Annotated[
        list[IdleReport], msgspec.Meta(description="pods that do not use their GPUs; left out if there are none")
    ] = []
    idle_unknown: Annotated[
        str, msgspec.Meta(description="why it is not known which pods use their GPUs; left out if it is")
    ] = ""
    minimums: Annotated[
        list[MinimumReport],
        msgspec.Meta(description="workloads with a minimum of replicas; left out if there are none"),
    ] = []
    notify: Annotated[
        list[str], msgspec.Meta(description="targets that messages to people do not reach; left out if there are none")
    ] = []
    bypassed: Annotated[
        list[str], msgspec.Meta(description="pods without a decision of Fairgate; left out if there are none")
    ] = []


def report_of(
    board: Board, left_out: list[str], unreached: Sequence[str] = (), *, idle_unknown: str = ""
) -> StatusReport:
    """Return a board as data; `unreached` are targets of messages."""
    return StatusReport(
        [_team(team) for team in board.teams],
        [_node(node) for node in board.nodes],
        [_free(row) for row in board.free],
        left_out,
        [_department(row) for row in board.departments],
        [
            UnusualReport(
                str(each.stage), [f"{pod.namespace}/{pod.name}" for pod in each.pods], format_gpus(each.gpus), each.text
            )
            for each in board.unusual
        ],
        [
            IdleReport(
                f"{pod.namespace}/{pod.name}",
                each.team,
                pod.tier_label or "",
                format_gpus(pod.demand.gpus),
                written_at(pod.idle_since),
            )
            for each in board.idle
            for pod in each.pods
        ],
        idle_unknown,
        [_minimum(row) for row in board.minimums],
        list(unreached),
        [f"{each.pod.namespace}/{each.pod.name}" for each in board.bypassed],
    )


def _minimum(row: MinimumRow) -> MinimumReport:
    workload, team, found = row
    state = found.statement.text
    return MinimumReport(workload, team, found.minimum, found.pods, found.ready, found.may_go, state)


def _department(row: DepartmentRow) -> DepartmentReport:
    return DepartmentReport(
        name=row.name, **amounts(row), weight=str(row.weight), models=_models(row.models), parent=row.parent or ""
    )


def _models(rows: tuple[ModelRow, ...]) -> list[ModelReport]:
    return [ModelReport(model=row.model, **amounts(row)) for row in rows]


def _team(team: TeamRow) -> TeamReport:
    return TeamReport(
        name=team.name,
        **amounts(team),
        holders=[HolderReport(name, format_gpus(gpus)) for name, gpus in team.holders],
        models=_models(team.models),
        department=team.department or "",
        queued=team.queued.pods,
        queued_gpus=format_gpus(team.queued.gpus) if team.queued.pods else "",
        idle=format_gpus(team.idle) if team.idle else "",
        starting=team.starting.pods,
        starting_gpus=format_gpus(team.starting.gpus) if team.starting.pods else "",
    )


def _node(node: NodeRow) -> NodeReport:
    rejecting = [
        RejectingReport(each.team, each.rejections, each.reason, written_at(each.until)) for each in node.rejecting
    ]
    groups = [_group(group) for group in node.groups]
    return NodeReport(node.name, node.model, node.state, groups, rejecting, node.is_held, list(node.arriving))


def _group(group: DeviceGroup) -> DeviceGroupReport:
    devices = [DeviceReport(device.pieces, list(device.allocations), device.shut) for device in group.devices]
    return DeviceGroupReport(group.resource, group.pieces, group.used, devices, group.is_packed)


def _free(row: FreeRow) -> FreeReport:
    return FreeReport(
        resource=row.resource,
        model=row.model,
        pieces=row.pieces,
        free=row.free,
        largest_pod=row.largest,
        at_once=row.at_once,
        largest_guaranteed_pod=row.guaranteed_pod,
        guaranteed_at_once=row.guaranteed_at_once,
        claimants=list(row.claimants),
        whole_nodes=row.whole_nodes,
        closed=row.closed,
        held=row.held,
    )
