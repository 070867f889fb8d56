"""`fairgate usage`: from files and from Prometheus, as a table, CSV and JSON; bad sources in one line."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from tests.addons.history.support import A100, T0, row
from webhook.addons.history.meter import INTERVAL_SECONDS
from webhook.addons.history.store import Batch, HistoryStore
from webhook.cli.main import main

HOUR = 3600
RANGE = ("--since", "2023-11-14T22:15:00Z", "--until", "2023-11-14T22:30:00Z")
ROWS = [
    row("observed", INTERVAL_SECONDS),
    row("guaranteed", 12 * HOUR, team="vision", user="ada", model=A100),
    row("preemptible", 0.5 * HOUR, team="nlp", user='=HYPERLINK("https://x")', model=A100),
    row("unused", 3 * HOUR, team="vision"),
    row("free", 2 * HOUR, model=A100),
    row("refused", 3, team="nlp", user="bob"),
    row("refused_gpus", 24, team="nlp", user="bob"),
    row("lost", 0.25 * HOUR, team="nlp", user="bob"),
    row("moved", 0.5 * HOUR, team="nlp", user="bob"),
    row("saved", 0.1 * HOUR, team="nlp", user="bob"),
]


def history(path, rows=ROWS):
    store = HistoryStore(path)
    store.write(Batch(rows, T0))
    store.close()
    return path


@pytest.fixture
def path(tmp_path):
    return history(tmp_path / "history.db")


def run(*arguments):
    return CliRunner().invoke(main, ["usage", *map(str, arguments)])


def test_a_table_says_what_its_numbers_cover(path):
    done = run("--history", path, *RANGE)
    assert done.output == (
        "team    guaranteed  preemptible  idle  waiting  lost  moved  saved  refused  GPUs refused\n"
        "vision        12.0         0.00  3.00     0.00  0.00   0.00   0.00        0          0.00\n"
        "nlp           0.00         0.50     -     0.00  0.25   0.50   0.10        3          24.0\n"
        "total         12.0         0.50  2.00     0.00  0.25   0.50   0.10        3          24.0\n"
        "\n"
        "GPU-hours from 2023-11-14T22:15:00Z to 2023-11-14T22:30:00Z; recorded 0.08 of 0.25 hours. "
        "Idle: shares without guaranteed pods; lost: to evictions; moved: to moves; saved: by checkpoints after a "
        "warning. Refused: requests.\n"
    )


def test_the_use_of_the_cluster_and_the_waits_of_jobs_follow(tmp_path):
    use = {"gpus": 160, "held": 120, "nodes": 20, "partly": 5, "spread": 80, "beyond": 20}
    rows = [*ROWS, *(row(f"use_{kind}", 300 * amount) for kind, amount in use.items())]
    rows += [row("started", 3, model="1/10"), row("started", 1, model="9-64/inf")]
    path = history(tmp_path / "use.db", rows)
    assert run("--history", path, *RANGE).output.splitlines()[-6:] == [
        "GPUs held: 75.0% at the end, 75.0% on average.",
        "25.0% of the nodes were only partly used. Beyond the fewest that gangs need: 25.0% of their nodes.",
        "",
        "GPUs of the job  started  wait p50     p90     p99",
        "1                      3      ≤10s    ≤10s    ≤10s",
        "9-64                   1    longer  longer  longer",
    ]
    found = json.loads(run("--history", path, *RANGE, "-o", "json").output)["ratios"]
    assert {key: found[key] for key in ("allocation", "occupancy", "fragmentation", "beyondFewest")} == {
        "allocation": 0.75, "occupancy": 0.75, "fragmentation": 0.25, "beyondFewest": 0.25
    }  # fmt: skip
    assert found["waits"][0] == {"size": "1", "jobs": 3, "waitP50": 10, "waitP90": 10, "waitP99": 10}


def test_a_table_that_is_cut_keeps_its_total(path):
    lines = run("--history", path, *RANGE, "--limit", "1").output.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["vision", "total"]
    assert lines[3] == "and 1 more team: --limit or -o json shows them"


def test_a_time_without_any_record_says_when_there_is_one(path, tmp_path):
    done = run("--history", path, "--since", "2023-11-15", "--until", "2023-11-16", "-o", "csv")
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    want = "nothing is recorded in this time: the history is from 2023-11-14T22:15:00Z to 2023-11-14T22:15:00Z"
    assert want in done.stderr
    HistoryStore(tmp_path / "new.db").close()
    assert "is empty: nothing has been recorded in it yet" in run("--history", tmp_path / "new.db").stderr
    assert run("--history", path, *RANGE).stderr == ""


def test_json_has_the_same_numbers(path):
    found = json.loads(run("--history", path, *RANGE, "-o", "json").output)
    assert found["observedHours"] == round(INTERVAL_SECONDS / HOUR, 6)
    assert [(each["name"], each["guaranteed"], each["preemptible"], each["idle"]) for each in found["usage"]] == [
        ("vision", 12, 0, 3),
        ("nlp", 0, 0.5, None),
    ]
    assert found["total"]["refusedGpus"] == 24
    both = (found["usage"][1], found["total"])
    assert [(each["lost"], each["moved"], each["saved"]) for each in both] == [(0.25, 0.5, 0.1)] * 2


def test_csv_has_no_name_that_a_spreadsheet_computes(path):
    found = list(csv.DictReader(io.StringIO(run("--history", path, *RANGE, "--by", "user", "-o", "csv").output)))
    assert {each["user"] for each in found} == {"ada", "bob", '\'=HYPERLINK("https://x")'}
    assert [each["idle"] for each in found] == ["", "", ""]


def test_names_cannot_control_a_terminal(tmp_path):
    path = history(tmp_path / "h.db", [row("guaranteed", HOUR, team="vision", user="\x1b[2Jada", model=A100)])
    assert "\x1b" not in run("--history", path, *RANGE, "--by", "user").output


def test_the_files_of_two_replicas_count_once(tmp_path, path):
    other = history(tmp_path / "other.db")
    one, two = (run(*flags, *RANGE).output for flags in (("--history", path), ("--history", path, "--history", other)))
    assert one.replace("       3          24.0", "       6          48.0") == two


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--history", "nothing.db"), "nothing.db cannot be read: No such file or directory"),
        (("--history", "pyproject.toml"), "pyproject.toml is not a history of Fairgate"),
        (("--since", "yesterday"), "expected an age such as 7d, 24h or 30m"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("--since", "9" * 400 + "d"), "expected an age such as 7d"),
        (("--history", "y", "--kubeconfig", "x"), "exclude each other"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line_with_status_2(arguments, why):
    done = run(*arguments)
    assert done.exit_code == 2
    assert why in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("text", ["90m", "2w", "2023-11-14", "2023-11-14T22:15:00+01:00", "2023-11-14 22:15"])
def test_ages_and_times_are_understood(path, text):
    assert run("--history", path, "--since", text).exit_code == 0


def test_what_was_held_and_not_used_comes_first(tmp_path):
    held = row("held_idle", 3 * HOUR, team="vision", user="ada", model=A100)
    path = history(tmp_path / "idle.db", [*ROWS, held])
    lines = run("--history", path, *RANGE).output.splitlines()
    assert lines[:4] == [
        "team    unused  guaranteed  preemptible  idle  waiting  lost  moved  saved  refused  GPUs refused",
        "vision    3.00        12.0         0.00  3.00     0.00  0.00   0.00   0.00        0          0.00",
        "nlp          -        0.00         0.50     -     0.00  0.25   0.50   0.10        3          24.0",
        "total     3.00        12.0         0.50  2.00     0.00  0.25   0.50   0.10        3          24.0",
    ]
    assert "Unused: GPUs of pods that did not use them, 24.0% of what was held." in lines
    (vision, _) = csv.DictReader(io.StringIO(run("--history", path, *RANGE, "-o", "csv").output))
    assert (vision["held_idle"], vision["idle"]) == ("3.0", "3.0")
