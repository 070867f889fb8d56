"""Reading histories: of this and other versions, damaged ones, and files that are none."""

import json
import sqlite3

import pytest

from tests.history.support import T0, row
from webhook.history.reader import read_run_times, read_usage
from webhook.history.store import Batch, HistoryError, HistoryStore, PodRow, Trace

EVER = (0, 2**40)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "history.db"
    store = HistoryStore(path)
    store.write(Batch([row("waiting", 1, team=f"team-{n}") for n in range(2000)], T0))
    store.close()
    return path


def test_a_file_is_read_while_it_is_written(path):
    store = HistoryStore(path)
    store.write(Batch([row("observed", 1)], T0))
    assert len(read_usage(path, *EVER).rows) == 2001
    store.close()


def test_a_copy_in_a_folder_that_cannot_be_written_is_read(path):
    path.parent.chmod(0o500)
    try:
        assert len(read_usage(path, *EVER).rows) == 2000
    finally:
        path.parent.chmod(0o700)


def test_run_times_are_those_of_pods_that_ended_last(path):
    pods = [PodRow(f"p{n}", "vision", f"p{n}", "o", "vision", created=T0, bound=T0, ended=T0 + n) for n in range(5)]
    others = [
        PodRow("runs", "vision", "runs", bound=T0),
        PodRow("never-ran", "vision", "never-ran", ended=T0 + 9),
        PodRow("refused", "vision", "refused", bound=T0, ended=T0 + 9, code="NoRoom", times=1),
        PodRow("backwards", "vision", "backwards", bound=T0 + 9, ended=T0),
        PodRow("no number", "vision", "no number", bound=T0, ended=float("inf")),
    ]
    store = HistoryStore(path)
    store.write(Batch((), T0, Trace((*pods, *others))))
    store.close()
    assert [row.uid for row in read_run_times(path, most=3)] == ["p4", "p3"], "infinite times take a place"
    assert len(read_run_times(path, most=100)) == 5


def test_what_users_said_of_their_runs_is_read_of_the_objects(path):
    said = {"metadata": {"annotations": {"fairgate.dev/run-time": "2h", "other": "x"}}, "spec": {}}
    limits = {"metadata": {"annotations": {"fairgate.dev/run-time-limit": "60s"}}, "spec": {"activeDeadlineSeconds": 9}}
    odd = {"metadata": {"annotations": {"fairgate.dev/run-time": [1]}}, "spec": {"activeDeadlineSeconds": "x"}}
    texts = [json.dumps(said), json.dumps(limits), json.dumps(odd), "no JSON", ""]
    store = HistoryStore(path)
    rows = [
        PodRow(f"p{n}", "vision", "p", team="vision", created=T0, bound=T0 + 5, ended=T0 + 90 - n, object=text)
        for n, text in enumerate(texts)
    ]
    store.write(Batch((), T0, Trace(tuple(rows))))
    store.close()
    found = read_run_times(path, most=9)
    assert [(row.run_time, row.limit, row.deadline) for row in found] == [
        ("2h", "", 0),
        ("", "60s", 9),
        ("[1]", "", 0),
        ("", "", 0),
        ("", "", 0),
    ]
    assert found[0].annotations == {"fairgate.dev/run-time": "2h"}
    assert [(row.created, row.bound) for row in found] == [(T0, T0 + 5)] * 5


def test_run_times_of_a_team_or_user_with_many_pods_do_not_displace_others(path):
    def ran(name, *, team, user, end):
        return PodRow(name, team, name, "o", team, user, created=T0, bound=T0, ended=T0 + end)

    flood = [ran(f"f{n}", team="flood", user=f"robot-{n % 20}", end=1000 + n) for n in range(300)]
    own = [ran(f"o{n}", team="flood", user="ada", end=n) for n in range(3)]
    honest = [ran(f"h{n}", team="honest", user="bob", end=n) for n in range(30)]
    store = HistoryStore(path)
    store.write(Batch((), T0, Trace((*flood, *own, *honest))))
    store.close()
    kept = [row.uid for row in read_run_times(path, most=100)]
    assert len(kept) == 100
    assert {row.uid for row in (*honest, *own)} <= set(kept)


@pytest.mark.parametrize("part", [0.9, 0.5, 0.1, 0.001])
def test_a_truncated_file_is_refused_with_the_reason(path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(HistoryError, match=r"is truncated|cannot be read: .*truncated|is not a history"):
        read_usage(path, *EVER)


def test_a_damaged_file_is_refused_with_the_reason(path):
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(HistoryError, match="cannot be read: database disk image is malformed"):
        read_usage(path, *EVER)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3"])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(HistoryError, match="is not a history of Fairgate"):
        read_usage(tmp_path / "other", *EVER)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(HistoryError, match="cannot be read: No such file"):
        read_usage(tmp_path / "nothing.db", *EVER)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(HistoryError, match="cannot be read: Is a directory"):
        read_usage(tmp_path, *EVER)


def test_tables_columns_and_kinds_of_a_later_version_are_left_out(path):
    with sqlite3.connect(path) as later:
        later.execute("ALTER TABLE usage ADD COLUMN carbon REAL")
        later.execute("CREATE TABLE weather (day INTEGER)")
        later.execute(
            "INSERT INTO usage (start, kind, team, user, model, department, amount) "
            "VALUES (?, 'new', '', '', '', '', 1)",
            (T0,),
        )
    later.close()
    assert len(read_usage(path, *EVER).rows) == 2000
