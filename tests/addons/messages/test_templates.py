"""Formats of messages, and that no text of a tenant becomes markup."""

import json
import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.messages.made import evicted, message
from tests.docs import pages
from tests.examples import examples
from webhook.addons.messages.delivery import (
    MAX_ITEMS,
    MAX_NAME,
    MAX_SLACK_CHARACTERS,
    MAX_TEXT,
    Message,
    MessageSubject,
    Phase,
    Severity,
    bounded,
    item,
    render,
)
from webhook.core.model.policy_addons import NotifyKind, NotifyTemplate

PAGE = pages.ROOT / "docs" / "tasks" / "notify.md"


def rendered(found, template):
    return json.loads(render(found, template))


def test_the_page_shows_the_format():
    [shown] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert json.loads(shown) == rendered(message(), NotifyTemplate.JSON)


def test_the_page_describes_every_field():
    named = set(
        re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(), flags=re.MULTILINE)))
    )
    want = {*msgspec.structs.asdict(message())} - {"created_at", "subject"} | {
        "createdAt",
        "subject.kind",
        "subject.name",
    }
    want |= {f"items.{name}" for name in msgspec.structs.asdict(evicted())}
    assert want <= named


def test_the_schema_accepts_the_message_and_nothing_less():
    sent = render(message(), NotifyTemplate.JSON)
    assert msgspec.json.decode(sent, type=Message) == message()
    schema = json.loads((pages.ROOT / "docs" / "reference" / "notify.schema.json").read_text())
    fields = schema["$defs"]["Message"] if "$defs" in schema else schema
    assert set(fields["required"]) == set(json.loads(sent))


def test_slack_gets_a_line_for_each_item():
    found = message(items=[evicted("a"), evicted("b")], count=7, severity=Severity.WARNING)
    text = rendered(found, NotifyTemplate.SLACK)["text"].split("\n")
    assert text[0] == "Warning: team vision: 1 pod evicted (cluster gpu-east)"
    assert text[1].startswith("• 2026-11-26T02:10:00Z: vision/a: team nlp takes")
    assert text[3:] == ["• and 5 more"]


def test_a_state_that_is_over_is_one_line():
    found = message(phase=Phase.ENDED, severity=Severity.CRITICAL, cluster="")
    assert rendered(found, NotifyTemplate.SLACK)["text"] == "Over: team vision: 1 pod evicted"


def test_an_alert_has_the_same_labels_from_its_begin_to_its_end():
    subject = MessageSubject(NotifyKind.TROUBLE, "ledger")
    alerts = [
        rendered(message(subject=subject, phase=phase, severity=Severity.CRITICAL), NotifyTemplate.ALERTMANAGER)
        for phase in (Phase.BEGAN, Phase.LASTS, Phase.ENDED)
    ]
    labels = {"alertname": "FairgateTrouble", "severity": "critical", "subject": "ledger", "cluster": "gpu-east"}
    assert [alert["labels"] for [alert] in alerts] == [labels] * 3
    assert alerts[0][0]["annotations"]["description"].startswith("2026-11-26T02:10:00Z: vision/sweep-17: team nlp")
    assert (alerts[0][0]["startsAt"], alerts[0][0]["endsAt"]) == ("2026-11-26T02:10:00Z", "2026-11-26T02:20:05Z")


HOSTILE = st.one_of(
    st.text(max_size=2000),
    st.sampled_from(
        ["<!channel>", "<https://evil.example|click>", "@everyone", "&lt;!here&gt;", "\u202eevil", "a\n\n• b"]
    ),
)


@examples(150)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=MAX_ITEMS), names=HOSTILE, phase=st.sampled_from(Phase))
def test_whatever_a_tenant_writes_is_text(texts, names, phase):
    items = [item(text, namespace=names, name=names) for text in texts]
    found = message(items=items, count=len(items) + 3, phase=phase)
    for each in items:
        assert max(len(each.text), len(each.name)) <= max(MAX_TEXT, MAX_NAME)
        assert each.text.isprintable()
    slack = rendered(found, NotifyTemplate.SLACK)
    assert not re.search(r"[<>]|@(?!\u200b)|&(?!(?:amp|lt|gt);)", slack["text"])
    assert len(slack["text"]) <= MAX_SLACK_CHARACTERS + 100
    assert slack["text"].count("\n") <= len(items) + 1
    assert (slack["parse"], slack["link_names"], slack["unfurl_links"]) == ("none", False, False)
    assert msgspec.json.decode(render(found, NotifyTemplate.JSON), type=Message) == found
    [alert] = rendered(found, NotifyTemplate.ALERTMANAGER)
    assert set(alert["labels"]) == {"alertname", "severity", "subject", "cluster"}


@given(text=st.text(max_size=5000))
def test_a_text_is_cut_to_a_line(text):
    found = bounded(text)
    assert len(found) <= MAX_TEXT
    assert found.isprintable()
