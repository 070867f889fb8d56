"""A row of a trace, whatever its format: what a pod or a gang of equal pods asks for, when, and for how long."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook.core.model.pod import Pod
from webhook.core.model.tier import Tier
from webhook.input_error import InputError

MAX_ROWS: Final = 1_000_000
"""Rows of a trace: more are a mistake, or a trace that is to be cut first."""

MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest run, and the longest trace."""

MAX_GPUS: Final = 100_000
"""GPUs of one row."""

MAX_AMOUNT: Final = 1 << 60
"""Thousandths of cores, or bytes of memory, of one row."""


class Row(NamedTuple):
    """One row. `gpus` is for each of its `pods`; `milli` is the part of each GPU in thousandths.

    `created` and `seconds` are in seconds. Either `team` or `namespace` says whose it is; neither: it is dealt out.
    Rows of one `gang` start together, and so do the `pods` of one row if they are several. `models` are GPU models that
    it may run on, none: any. `cpu` is in thousandths of a core, `memory` in bytes. `is_job`: its GPUs may be on several
    nodes, so it becomes as many pods as it needs. `pod` is the whole pod, where the trace has it: it is what is decided
    on, and the amounts beside it only say how large the row is for a load.
    """

    line: int
    name: str
    gpus: int
    created: int
    seconds: int
    pods: int = 1
    milli: int = 1000
    team: str = ""
    namespace: str = ""
    user: str = ""
    cpu: int = 0
    memory: int = 0
    models: tuple[str, ...] = ()
    gang: str = ""
    priority: int = 0
    tier: Tier | None = None
    is_job: bool = False
    pod: Pod | None = None


class TraceRows(NamedTuple):
    """The rows of a trace, and how many of its tasks were left out, by the reason in words."""

    rows: list[Row]
    left_out: Mapping[str, int]


class TraceError(InputError):
    """A trace cannot be used: each of `problems` has file, line, what is wrong and what was expected."""
