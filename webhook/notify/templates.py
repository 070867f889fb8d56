"""Messages in the formats of receivers: plain JSON, Slack, Alertmanager. Pure.

Nothing of a tenant reaches a URL or a header, and no text becomes markup: Slack reads `<!channel>` and links in angle
brackets, and Mattermost reads `@channel`.
"""

from typing import Any, Final, assert_never

import msgspec

from webhook.core.model.notify_rules import NotifyTemplate
from webhook.notify.message import Item, Message, Phase, Severity

MAX_SLACK_CHARACTERS: Final = 3500
"""Slack cuts longer texts of a webhook at 40,000, and Mattermost refuses those over 4,000 by default."""

_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"})
_MARKS: Final = {Severity.INFO: "", Severity.WARNING: "Warning: ", Severity.CRITICAL: "Critical: "}
_PHASES: Final = {Phase.HAPPENED: "", Phase.BEGAN: "", Phase.LASTS: "Still: ", Phase.ENDED: "Over: "}


def render(message: Message, template: NotifyTemplate) -> bytes:
    """Return the body of the request, as JSON."""
    match template:
        case NotifyTemplate.JSON:
            return msgspec.json.encode(message)
        case NotifyTemplate.SLACK:
            return msgspec.json.encode(_slack(message))
        case NotifyTemplate.ALERTMANAGER:
            return msgspec.json.encode([_alert(message)])
        case _ as never:
            assert_never(never)


def _slack(message: Message) -> dict[str, Any]:
    where = f" (cluster {message.cluster})" if message.cluster else ""
    is_over = message.phase is Phase.ENDED
    mark = _PHASES[message.phase] or _MARKS[message.severity]
    lines = [f"{mark}{message.summary}{where}".translate(_ESCAPED)]
    room = MAX_SLACK_CHARACTERS - len(lines[0])
    for each in () if is_over else message.items:
        line = f"• {_line(each)}".translate(_ESCAPED)
        if (room := room - len(line) - 1) < 0:
            break
        lines.append(line)
    total = max(message.count, len(message.items))
    if not is_over and message.items and (more := total - len(lines) + 1):
        lines.append(f"• and {more:,} more")
    # without these two Slack links what looks like a host, such as the pod evil.example.com, and shows its preview
    return {
        "text": "\n".join(lines),
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _line(item: Item) -> str:
    pod = f"{item.namespace}/{item.name}" if item.name else ""
    return ": ".join(filter(None, (item.at, pod, item.text)))


def _alert(message: Message) -> dict[str, Any]:
    """Return an alert of Alertmanager's API v2; it is over at `endsAt` unless it is sent again."""
    kind = message.subject.kind
    labels = {
        "alertname": f"Fairgate{kind.capitalize()}",
        "severity": message.severity,
        "subject": message.subject.name,
        "cluster": message.cluster,
    }
    annotations = {"summary": message.summary, "description": "\n".join(map(_line, message.items))}
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": message.since,
        "endsAt": message.until,
    }
