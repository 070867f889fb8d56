"""An explanation for a screen, one line or table a step."""

from collections.abc import Iterator
from typing import Final

from webhook.cli.explain.outcome import (
    ExplainedSubject,
    Verdict,
    event_lines,
    eviction_line,
    line_lines,
    move_lines,
    reclaim_lines,
    some,
    verdict_of,
)
from webhook.cli.explain.report import in_gpus
from webhook.cli.explain.subjects import Existing, PodState
from webhook.cli.grid import Grid, number, prose
from webhook.cli.grid import Line as Text
from webhook.cli.screen import Part, Screen
from webhook.core.admission.domain_rules import DomainSteps
from webhook.core.admission.queueing import QUEUE_MODE
from webhook.core.explain.explanation import Explanation, NodeStep, PoolStep
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    Unlimited,
    agreeing,
    amount_text,
    column_gpus,
    format_limit,
    plural,
    plural_gpus,
    printable,
)
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Decision, DecisionAnnotation, Deny, Outcome
from webhook.core.model.demand import Demand

_STYLES: Final = {
    Outcome.ADMIT: "green",
    Outcome.QUEUE: "yellow",
    Outcome.DENY: "bold red",
    Outcome.RETRY: "magenta",
    Outcome.SKIP: "magenta",
}
_STATES: Final = {
    PodState.RUNNING: "It runs",
    PodState.BOUND: "It is",
    PodState.ENDED: "It has ended",
    PodState.QUEUED: "It is queued",
    PodState.PENDING: "It waits for a node",
}


def to_steps(explained: ExplainedSubject, *, policy_hash: str, width: int, is_colored: bool) -> str:
    """Return an explanation as text of this width."""
    subject = explained.subject
    screen = Screen(width=width, is_colored=is_colored)
    count = "" if subject.count == 1 else f", one of {subject.count or 'an open number of'}"
    screen.show(Text(f"{subject.title}{count}", style="bold"))
    if subject.pods:
        screen.show(Text(subject.pods))
    if subject.existing is not None:
        if line := eviction_line(explained, subject.existing):
            screen.show(Text(line, style="yellow"))
        if subject.existing.stage_text:
            screen.show(Text(f"Stage {subject.existing.stage}: {subject.existing.stage_text}.", style="yellow"))
        if subject.existing.idle_text:
            screen.show(Text(f"Idle: {subject.existing.idle_text}.", style="yellow"))
        screen.show(Text(_existing_line(subject.existing, policy_hash)))
        if subject.existing.state is not PodState.QUEUED:
            screen.show(Text("If it came now, without itself:"))
    screen.show_steps(_steps(explained))
    return screen.text


def _existing_line(existing: Existing, policy_hash: str) -> str:
    """Return what the pod does now, and the decision at its creation."""
    found = existing.decision_annotation
    annotation = None if found is None else decision_annotation.read(found)
    parts = [state_text(existing)]
    if annotation is not None and (annotation.domain or annotation.why):
        parts[0] += f", {_domain(annotation)}"
    if annotation is None:
        parts.append("It bypassed Fairgate.")
    else:
        is_present = annotation.policy == policy_hash
        policy = "the present policy" if is_present else f"an earlier policy ({annotation.policy})"
        is_queued = annotation.mode == QUEUE_MODE and not existing.node and not existing.tier
        done = "Queued" if is_queued else f"Admitted as {existing.tier}" if existing.tier else "Admitted"
        parts.append(f"{done} ({annotation.code}) at {annotation.at} by {policy}.")
    parts[0] += "."
    return " ".join(parts)


def state_text(existing: Existing) -> str:
    """Return what a pod does now, where, and since when; the line says that of a queued pod."""
    if existing.state is PodState.QUEUED:
        return _STATES[existing.state]
    on = f" on {printable(existing.node)}" if existing.node else ""
    since = f", since {printable(existing.since)}" if existing.since else ""
    return f"{_STATES[existing.state]}{on}{since}"


def _domain(annotation: DecisionAnnotation) -> str:
    """Return in which domain a pod was placed with its gang, and why."""
    domain = f"in {printable(annotation.domain)} with its gang" if annotation.domain else "in no one domain"
    return f"{domain} ({printable(annotation.why)})" if annotation.why else domain


def _steps(explained: ExplainedSubject) -> Iterator[tuple[str, list[Part]]]:
    explanation = explained.explanation
    verdict = verdict_of(explanation.decision)
    is_read = not isinstance(explained.subject.template, Deny)
    yield "demand", [Text(_demand(explanation.pod.demand) if is_read else "cannot be read")]
    team = "no team" if explanation.team is None else explanation.team.name
    user = "" if explanation.user is None else f"; user {explanation.user}"
    above = [] if explanation.team is None else [each.name for each in explanation.team.departments]
    if above:
        team = f"{team} of department {' below '.join(above)}"
    yield "team", [Text(f"{team}, by namespace {explanation.pod.namespace}{user}")]
    if explanation.limits:
        yield "limits", _limits(explanation)
        yield "tier", [Text(_tier(explanation, verdict))]
    for step in explanation.pools:
        yield f"pool {step.pool.name}" if step.pool.name else "nodes", _pool(step)
    if explanation.domains is not None:
        yield "domains", [Text(line) for line in _domains(explanation.domains, explanation.decision)]
    yield from _kept_off(explanation)
    yield "outcome", [_outcome(verdict)]
    if explained.line is not None:
        yield "line", [Text(each, style="yellow") for each in line_lines(explained.line, now=explained.now)]
    if lines := list(reclaim_lines(explained)):
        yield "reclaim", [Text(line, style="yellow") for line in lines]
    if explained.moves is not None:
        lines = list(move_lines(explained.moves, are_made=explained.are_moves_made))
        yield "moves", [Text(line, style="yellow") for line in lines]
    if lines := list(event_lines(explained.details.events, now=explained.now)):
        yield "events", [Text(line) for line in lines]
    if instead := list(_instead(explanation)):
        yield "instead", [Text(each, style="cyan") for each in instead]


def _kept_off(explanation: Explanation) -> Iterator[tuple[str, list[Part]]]:
    if explanation.excluders:
        yield "kept off", [Text(f"by required anti-affinity of {some(each.text for each in explanation.excluders)}")]


def _demand(demand: Demand) -> str:
    devices = ", ".join(f"{name} {amount}" for name, amount in demand.devices) or "no GPU that policy counts"
    others = dict(demand.requests)
    rest = ", ".join(f"{name} {amount_text(name, others.get(name, 0))}" for name in (CPU, MEMORY))
    return f"{devices}: counts {plural_gpus(demand.gpus)}; beside that {rest}"


def _limits(explanation: Explanation) -> list[Part]:
    gpus = explanation.pod.demand.gpus
    table = Grid(prose("limit"), number("sum"), "of", has_header=False)
    for limit in explanation.limits:
        taken = f"{column_gpus(limit.taken)} + {column_gpus(gpus)} = {column_gpus(limit.taken + gpus)}"
        breaks = limit.is_exceeded_by(gpus)
        of = "no limit" if isinstance(limit.limit, Unlimited) else f"of {format_limit(limit.limit)}"
        table.add_row(
            Text(limit.subject.text),
            Text(taken),
            Text(f"{of}{', too much' if breaks else ''}", style="red" if breaks else ""),
        )
    holders = ", ".join(f"{name} {column_gpus(held)}" for name, held in explanation.holders)
    reserved = f"; reserved {column_gpus(explanation.reserved)}" if explanation.reserved else ""
    return [table, Text(f"held by {holders or 'no pod'}{reserved}")]


def _tier(explanation: Explanation, verdict: Verdict) -> str:
    left = plural_gpus(max(0, explanation.guaranteed_left))
    asked = f"; its label asks for {explanation.pod.tier_label}" if explanation.pod.tier_label else ""
    why = f"{verdict.tier}: {verdict.reasons[0].text} ({verdict.reasons[0].code})" if verdict.tier else "none"
    return f"{why}; the guaranteed share has {left} left{asked}"


def _pool(step: PoolStep) -> list[Part]:
    if step.nodes is None:
        return [Text(f"closed: {step.closed}", style="dim")]
    found = step.nodes
    nodes = found.with_room + sum(len(filtered.names) for filtered in found.filtered)
    have = _have(found.with_room, nodes)
    parts: list[Part] = [Text(f"{found.with_room} of {plural(nodes, 'node')} {have} room")]
    if found.best:
        parts_of = number("lost to pods to come", goes=3), number("tiers mixed", goes=2), number("left over", goes=1)
        table = Grid("best", number("cost"), *parts_of, heading_style="dim")
        for name, cost in found.best:
            if cost is None:  # as where all devices are tainted, and the pod tolerates that
                table.add_row(Text(name), Text("not compared"), *[Text()] * len(parts_of))
                continue
            costs = sum(cost), cost.useless, cost.mixing, cost.gpus_left + cost.cpu_left
            table.add_row(Text(name), *[Text(f"{in_gpus(each):.3f}") for each in costs])
        parts.append(table)
    parts += [Text(f"{len(names)}: {cause}: {some(names)}") for cause, names in found.filtered]
    if step.node_step is not None:
        parts.append(Text(_asked(step.node_step), style="cyan"))
    return parts


def _have(some_of_them: int, of: int) -> str:
    return agreeing(1 if of == 1 else some_of_them, "has", "have")


def _asked(asked: NodeStep) -> str:
    if asked.obstacles:
        return f"{asked.node}: {'; '.join(asked.obstacles)}"
    if asked.place is None:
        return f"{asked.node}: has room, and soft rules about the pods around it prefer other nodes"
    return f"{asked.node}: has room, and is choice number {asked.place}"


def _outcome(verdict: Verdict) -> Text:
    text = Text(verdict.word, style=_STYLES[verdict.outcome])
    if verdict.tier is not None:
        text.append(f" as {verdict.tier}", style="yellow" if verdict.tier is Tier.PREEMPTIBLE else "green")
        text.append(f", sent to {', '.join(verdict.nodes)}" if verdict.nodes else ", kube-scheduler chooses the node")
    else:
        text.append("".join(f"\n{reason.text} ({reason.code})" for reason in verdict.reasons), style="default")
    for warning in verdict.warnings:
        text.append(f"\nwarning: {warning.text} ({warning.code})", style="yellow")
    return text


def _domains(steps: DomainSteps, decision: Decision) -> Iterator[str]:
    number = plural(steps.pods, "pod")
    yield (
        f"its gang requires one {steps.required} for {number}" if steps.required else f"{number} of its gang, together"
    )
    for step in steps.levels:
        shown = ", ".join(f"{room.name.partition('=')[2]} {room.holds}" for room in step.rooms)
        more = f" and {step.number - len(step.rooms)} more" if step.number > len(step.rooms) else ""
        have = (
            f"{step.enough} of {step.number} {_have(step.enough, step.number)} room for all"
            if step.number
            else "no node has this label"
        )
        yield f"{step.key}: {have}{': ' if shown else ''}{shown}{more}"
    place = decision.node_choice.domain if isinstance(decision, Admit) else None
    if place is not None and place.name:
        yield f"chosen: {place.name}, which {place.why}"


def _instead(explanation: Explanation) -> Iterator[str]:
    if explanation.smaller is not None:
        devices = ", ".join(f"{name} {amount}" for name, amount in explanation.smaller.devices)
        yield f"{devices} would run now, with the same cpu and memory"
    for pool in explanation.elsewhere:
        yield f"pool {pool} would run it now"
