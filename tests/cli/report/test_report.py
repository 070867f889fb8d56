"""`fairgate report`: from log lines to refusals, enforced or not."""

import json

import pytest
from click.testing import CliRunner

from webhook.cli import report as tallies
from webhook.cli.report import report, tally


def line(name="p", **fields):
    defaults = {
        "time": "2026-01-01T00:00:00.000Z",
        "level": "info",
        "event": "decision",
        "phase": "validate",
        "operation": "CREATE",
        "namespace": "vision",
        "name": name,
        "owner": "",
        "team": "a",
        "tier": "",
        "gpus": 8,
        "outcome": "skip",
        "code": "TeamLimitExceeded",
        "nodes": [],
        "dry_run": False,
        "message": "exceeded quota: team a: requested 8",
        "enforce": "shadow",
        "would": "deny",
    }
    return json.dumps(defaults | fields).encode() + b"\n"


ENFORCED = {"enforce": "enforce", "would": ""}


def rows(*lines):
    return [(row.outcome, row.enforced, row.who, row.decisions, row.gpus) for row in tally(lines).rows]


def test_pods_of_a_workload_are_one_row_from_first_to_last():
    found = tally(
        [
            line("t-1", owner="Job/train", time="2026-01-01T00:00:05Z"),
            line("t-2", owner="Job/train", time="2026-01-01T00:00:01Z", gpus=0.5),
            line("t-3", owner="Job/train", time="2026-01-01T00:00:03Z", message="last"),
        ]
    )
    (row,) = found.rows
    assert (row.who, row.decisions, row.gpus, row.first[-3:], row.last[-3:]) == ("Job/train", 3, 16.5, "01Z", "05Z")
    assert (row.message, found.decisions) == ("last", 3)


def test_lines_of_version_0_1_have_text_for_numbers_and_lists():
    (row,) = tally([line(gpus="1/2", nodes="n0,n1"), line(gpus=1.5, nodes=["n0"])]).rows
    assert (row.gpus, row.placed) == (2, 2)


def test_other_events_count_as_json_whatever_their_fields():
    assert tally([b'{"event":"world loaded","nodes":4,"pods":2}\n', b"not json\n"]).unread == 1


@pytest.mark.parametrize(
    "passed_over",
    [
        line(event="listening"),
        line(operation="DELETE"),
        line(dry_run=True),
        line(would=""),
        line(would="skip"),
        line(**ENFORCED, phase="mutate", outcome="admit", tier="guaranteed"),
        b"\n",
    ],
)
def test_only_decisions_on_new_pods_count(passed_over):
    assert rows(passed_over) == []


def test_refusals_come_first_and_unenforced_ones_are_marked():
    assert rows(
        line("a", would="admit", tier="preemptible", code="Borrows"),
        line("b", **ENFORCED, phase="mutate", outcome="deny"),
        line("c", would="deny", gpus="1"),
    ) == [("refused", True, "Pod/b", 1, 8), ("refused", False, "Pod/c", 1, 1), ("preemptible", False, "Pod/a", 1, 8)]


def test_lines_that_are_not_json_are_counted():
    assert tally([b"Traceback\n", b"\xff\n", line()]).unread == 2


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(tallies, "MOST_ROWS", 2)
    assert rows(line("a"), line("b"), line("c"), line("d"), line("a")) == [
        ("refused", False, "others", 2, 16),
        ("refused", False, "Pod/a", 2, 16),
        ("refused", False, "Pod/b", 1, 8),
    ]


def test_the_table_has_counts_and_messages():
    lines = [
        line("t-1", owner="Job/train"),
        line("x", would="admit", tier="guaranteed", code="WithinShare", nodes="n1"),
        b"oops\n",
    ]
    done = CliRunner().invoke(report, input=b"".join(lines))
    assert done.exit_code == 0
    assert done.stdout == (
        "outcome           code               team  namespace  who        times  gpus  first                     last\n"
        "would be refused  TeamLimitExceeded  a     vision     Job/train      1     8  2026-01-01T00:00:00.000Z  "
        "2026-01-01T00:00:00.000Z\n"
        "\n"
        "vision/Job/train: exceeded quota: team a: requested 8\n"
        "\n"
        "outcome              team  pods  gpus  placed\n"
        "would be guaranteed  a        1     8       1\n"
        "\n"
        "2 decisions, 2026-01-01T00:00:00.000Z to 2026-01-01T00:00:00.000Z; no JSON in 1 line\n"
    )


def test_a_table_that_is_cut_says_how_many_rows_more_there_are_and_sums_all():
    lines = b"".join(line("x", owner=f"Job/train-{number}") for number in range(5))
    done = CliRunner().invoke(report, ["--limit", "2"], input=lines)
    printed = done.stdout.splitlines()
    assert [each.split()[6] for each in printed[1:3]] == ["Job/train-0", "Job/train-1"]
    assert " ".join(printed[3].split()) == "total 5 rows 5 40"
    assert "and 3 more rows: --limit or -o json shows them" in printed
    assert sum(": exceeded quota" in each for each in printed) == 2
    whole = CliRunner().invoke(report, input=lines).stdout
    assert sum(": exceeded quota" in each for each in whole.splitlines()) == 5


def test_the_json_output(tmp_path):
    (tmp_path / "one.log").write_bytes(line("a"))
    (tmp_path / "two.log").write_bytes(line("a"))
    done = CliRunner().invoke(report, [str(tmp_path / "one.log"), str(tmp_path / "two.log"), "-o", "json"])
    found = json.loads(done.stdout)
    assert [row["decisions"] for row in found["rows"]] == [2]


def test_an_empty_log_gives_an_empty_report():
    assert CliRunner().invoke(report, input=b"").stdout == "0 decisions\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"2026-01-01T00:00:00.000Z [info     ] decision                       phase=mutate operation=CREATE\n",
        b'[pod/fairgate-0/fairgate] {"event": "decision"}\n',
    ],
    ids=["console format", "lines with a prefix"],
)
def test_a_log_in_another_format_is_an_error_and_not_an_empty_report(lines):
    done = CliRunner().invoke(report, input=lines * 2)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "fairgate: nothing to report: 2 lines read, none is JSON; run fairgate serve with --log-format json (the "
        "default), and pass its lines unchanged, without a prefix\n"
    )


def test_a_log_of_other_events_is_read():
    done = CliRunner().invoke(report, input=b'{"event":"world loaded","nodes":4}\nTraceback\n')
    assert (done.exit_code, done.stdout) == (0, "0 decisions; no JSON in 1 line\n")
