"""The output of `fairgate uninstall`: as data, and as lines for a terminal."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from webhook.cluster.uninstall.plan import PlannedStep, Step
from webhook.core.model.text import plural

_SHOWN: Final = 3
_FAILURES: Final = 10
"""Objects that a line names, and failures below it; -o json has all."""


class State(StrEnum):
    """How far a step is. `kept`: what it is about stays, as the user wished."""

    PLANNED = "planned"
    DONE = "done"
    KEPT = "kept"
    FAILED = "failed"


class StepReport(msgspec.Struct):
    """A step, what it does, and with what."""

    step: Step
    state: State
    does: str
    objects: list[str]
    failed: Annotated[list[str], msgspec.Meta(description="what could not be done, and why")]


class UninstallReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate uninstall`."""

    dry_run: bool
    complete: Annotated[bool, msgspec.Meta(description="nothing is left to do")]
    missing_rights: list[str]
    problem: Annotated[str, msgspec.Meta(description="why it ended early; empty if it did not")]
    steps: Annotated[list[StepReport], msgspec.Meta(description="in the order in which they are carried out")]
    left: Annotated[list[str], msgspec.Meta(description="what is left on purpose")]


def step_report(planned: PlannedStep, *, is_over: bool, failed: tuple[str, ...] = ()) -> StepReport:
    """Return a step as data."""
    over = State.FAILED if failed else State.DONE
    state = State.KEPT if planned.is_kept else over if is_over else State.PLANNED
    return StepReport(planned.step, state, planned.does, list(planned.objects), list(failed))


def line_of(step: StepReport) -> str:
    """Return a step as one line, with another one for each thing that failed."""
    more = len(step.objects) - _SHOWN
    named = ", ".join(step.objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    what = f"{named}: " if named else ""
    failures = "".join(f"\n  failed: {each}" for each in step.failed[:_FAILURES])
    return f"{step.step.value:12} {step.state.value:7} {what}{step.does if named else 'nothing'}{failures}"


def summary_of(report: UninstallReport) -> str:
    """Return the closing lines."""
    left = "\n".join(f"  {each}" for each in report.left)
    failed = sum(len(step.failed) for step in report.steps)
    if report.dry_run:
        head = "nothing was changed"
    elif report.complete:
        head = "Fairgate is uninstalled"
    else:
        head = f"{plural(failed, 'object')} could not be changed: run it again"
    return f"\n{head}; left on purpose:\n{left}\n"
