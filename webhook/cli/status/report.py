"""The board as data: the stable format of `-o json` and `-o yaml`."""

from typing import Annotated

import msgspec

from webhook.cli.status.board import Bank, Board, FreeRow, NodeRow, TeamRow
from webhook.core.model.amount import format_gpus, format_limit
from webhook.core.model.tier import Tier

_GPUS = "GPUs, as in 2, 0.5 or 3/7"


class HolderReport(msgspec.Struct):
    """Who holds GPUs: the controller of pods, or a bare pod."""

    name: str
    gpus: Annotated[str, msgspec.Meta(description=_GPUS)]


class ModelReport(msgspec.Struct, rename="camel"):
    """A team's share of one GPU model."""

    model: str
    guaranteed: str
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    used: str
    borrowed: str


class TeamReport(msgspec.Struct, rename="camel"):
    """A team's share and what is taken of it."""

    name: str
    guaranteed: Annotated[str, msgspec.Meta(description=_GPUS)]
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    used: Annotated[str, msgspec.Meta(description="all that is charged: borrowed and waiting included")]
    borrowed: Annotated[str, msgspec.Meta(description="what of it is preemptible")]
    waiting: Annotated[str, msgspec.Meta(description="what of it is on no node yet")]
    holders: Annotated[list[HolderReport], msgspec.Meta(description="the largest first")]
    models: list[ModelReport]


class HoldReport(msgspec.Struct):
    """What one pod has of a device."""

    pod: str
    team: str
    tier: Tier
    pieces: int


class DeviceReport(msgspec.Struct):
    """One GPU, or one instance that a GPU was cut into."""

    pieces: Annotated[int, msgspec.Meta(description="1 for a whole GPU, else the parts that it is handed out in")]
    holders: list[HoldReport]


class BankReport(msgspec.Struct, rename="camel"):
    """The devices of one resource on a node, in pieces of that resource."""

    resource: str
    pieces: int
    used: int
    devices: list[DeviceReport]
    is_exact: Annotated[bool, msgspec.Meta(description="false: pieces are counted, not told apart; dealt out by name")]


class NodeReport(msgspec.Struct):
    """A node with GPUs."""

    name: str
    model: Annotated[str, msgspec.Meta(description="empty where no label says it")]
    state: Annotated[str, msgspec.Meta(description="empty, or why it takes no pods: not ready, cordoned")]
    gpus: list[BankReport]


class FreeReport(msgspec.Struct, rename="camel"):
    """What is free of one resource and model, in pieces of that resource, by GPUs alone."""

    resource: str
    model: str
    pieces: int
    free: Annotated[int, msgspec.Meta(description="on nodes that take pods")]
    largest_pod: Annotated[int, msgspec.Meta(description="the largest pod that a node could take now")]
    at_once: Annotated[int, msgspec.Meta(description="how many of these the nodes could take now")]
    largest_guaranteed_pod: Annotated[
        int, msgspec.Meta(description="the largest guaranteed pod that reclaim could seat, on one node")
    ]
    guaranteed_at_once: Annotated[int, msgspec.Meta(description="how many of these it could seat")]
    whole_nodes: Annotated[int, msgspec.Meta(description="nodes that take pods and have none")]
    closed: Annotated[int, msgspec.Meta(description="free on nodes that take no pods")]


class StatusReport(msgspec.Struct, rename="camel"):
    """What `fairgate status` saw."""

    teams: list[TeamReport]
    nodes: list[NodeReport]
    free: Annotated[list[FreeReport], msgspec.Meta(description="empty where nodes or pods could not all be read")]
    left_out: Annotated[
        list[str], msgspec.Meta(description="what the user may not read, and which right would show it")
    ]


def report_of(board: Board, left_out: list[str]) -> StatusReport:
    """Say a board as data."""
    return StatusReport(
        [_team(team) for team in board.teams],
        [_node(node) for node in board.nodes],
        [_free(row) for row in board.free],
        left_out,
    )


def _team(team: TeamRow) -> TeamReport:
    return TeamReport(
        team.name,
        format_gpus(team.guaranteed),
        format_limit(team.limit),
        format_gpus(team.used),
        format_gpus(team.borrowed),
        format_gpus(team.waiting),
        [HolderReport(name, format_gpus(gpus)) for name, gpus in team.holders],
        [
            ModelReport(
                row.model,
                format_gpus(row.guaranteed),
                format_limit(row.limit),
                format_gpus(row.used),
                format_gpus(row.used - row.used_guaranteed),
            )
            for row in team.models
        ],
    )


def _node(node: NodeRow) -> NodeReport:
    return NodeReport(node.name, node.model, node.state, [_bank(bank) for bank in node.banks])


def _bank(bank: Bank) -> BankReport:
    devices = [
        DeviceReport(device.pieces, [HoldReport(hold.pod, hold.team, hold.tier, hold.pieces) for hold in device.holds])
        for device in bank.devices
    ]
    return BankReport(bank.resource, bank.pieces, bank.used, devices, bank.is_packed)


def _free(row: FreeRow) -> FreeReport:
    return FreeReport(
        row.resource,
        row.model,
        row.pieces,
        row.free,
        row.largest,
        row.at_once,
        row.seat,
        row.seats,
        row.whole_nodes,
        row.closed,
    )
