"""The store: whole batches, one writer, a bounded size, and clear errors for a disk that does not take them."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from tests.addons.history.support import T0, amounts, row
from webhook.addons.history.meter import INTERVAL_SECONDS
from webhook.addons.history.reader import read_usage
from webhook.addons.history.store import Batch, HistoryBounds, HistoryError, HistoryStore

DAY = 86_400


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


@pytest.fixture
def store(path):
    opened = HistoryStore(path)
    yield opened
    opened.close()


def read(path, since=0, until=2**40):
    return list(read_usage(path, since, until).rows)


def test_what_is_written_is_read_in_its_time_range(store, path):
    first, second = (
        row("guaranteed", 10, team="vision", user="ada", model="A100", department="research"),
        row("observed", 300, start=T0 + INTERVAL_SECONDS),
    )
    store.write(Batch([second, first], T0 + 1.5))
    assert read(path) == [first, second]
    assert read(path, T0, T0 + INTERVAL_SECONDS) == [first]


def test_writing_a_row_twice_counts_it_once(store, path):
    for amount in (10, 20, 20):
        store.write(Batch([row("guaranteed", amount, team="vision")], T0))
    assert amounts(read(path)) == {("guaranteed", "vision", "", ""): 20}


def test_a_restart_goes_on_with_the_interval_that_was_not_over(store, path):
    rows = [row("observed", 300, start=T0), row("observed", 20, start=T0 + INTERVAL_SECONDS)]
    store.write(Batch(rows, T0 + INTERVAL_SECONDS + 20.25))
    store.close()
    again = HistoryStore(path)
    found = again.recorded()
    again.close()
    assert found.until == T0 + INTERVAL_SECONDS + 20.25
    assert list(found.rows) == rows[1:]


def test_a_new_file_has_nothing_recorded(store):
    assert store.recorded() is None


@pytest.mark.usefixtures("store")
def test_a_second_process_does_not_write_the_same_file(path):
    opens = f"HistoryStore(Path({str(path)!r}))"
    code = f"from pathlib import Path; from webhook.addons.history.store import HistoryStore; {opens}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is written by another process: give each replica a file of its own" in done.stderr


def test_a_writer_that_is_killed_leaves_whole_batches(path):
    code = f"""
    from pathlib import Path
    from webhook.addons.history.store import Batch, HistoryStore
    from webhook.addons.history.meter import UsageKey, UsageKind, UsageRow
    store = HistoryStore(Path({str(path)!r}))
    for number in range(10**6):
        keys = [UsageKey(UsageKind.WAITING, f"team-{{n}}") for n in range(50)]
        store.write(Batch([UsageRow({T0}, key, number) for key in keys], {T0}))
        if number == 20:
            print("writing", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    found = read(path)
    assert len(found) == 50
    assert len({each.amount for each in found}) == 1
    HistoryStore(path).close()


def test_rows_of_another_time_are_deleted_when_they_are_too_old(store, path):
    store.write(Batch([row("observed", 1, start=T0 - 91 * DAY), row("observed", 2, start=T0 - 89 * DAY)], T0))
    store.prune(T0)
    assert [each.amount for each in read(path)] == [2]


def test_a_file_that_is_nearly_full_loses_its_oldest_days(path):
    store = HistoryStore(path, HistoryBounds(megabytes=1))
    for day in range(10):
        rows = [row("waiting", 1, team="t" * 100, user=f"u{n}", start=T0 + day * DAY) for n in range(1000)]
        store.prune(T0)
        store.write(Batch(rows, T0))
    store.prune(T0 + 10 * DAY)
    kept = {each.start for each in read(path)}
    store.close()
    assert max(kept) == T0 + 9 * DAY
    assert min(kept) > T0
    assert path.stat().st_size <= 1024 * 1024


def test_a_full_file_says_so_and_keeps_what_it_has(path):
    store = HistoryStore(path, HistoryBounds(megabytes=1))
    store.write(Batch([row("waiting", 7, team="kept")], T0))
    rows = [row("waiting", 1, team="t" * 100, user=f"user-{n}" * 10) for n in range(10_000)]
    with pytest.raises(HistoryError, match="full"):
        store.write(Batch(rows, T0 + 1))
    assert amounts(read(path)) == {("waiting", "kept", "", ""): 7}
    store.write(Batch([row("waiting", 8, team="kept")], T0))
    store.close()


def test_a_locked_file_says_so_and_takes_the_rows_later(store, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HistoryError, match="database is locked"):
        store.write(Batch([row("observed", 1)], T0))
    other.execute("ROLLBACK")
    other.close()
    store.write(Batch([row("observed", 1)], T0))
    assert len(read(path)) == 1


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    with pytest.raises(HistoryError, match="unable to open database file"):
        HistoryStore(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"team,gpus\nvision,3\n" * 100, "not a database", id="a file of another kind"),
        pytest.param(b"", None, id="an empty file becomes a history"),
    ],
)
def test_a_file_of_another_kind_is_left_alone(path, content, why):
    path.write_bytes(content)
    if why is None:
        HistoryStore(path).close()
        assert read(path) == []
        return
    with pytest.raises(HistoryError, match=why):
        HistoryStore(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE cats (name TEXT)")
    other.close()
    with pytest.raises(HistoryError, match="is not a history of Fairgate"):
        HistoryStore(path)
    with sqlite3.connect(path) as other:
        assert [name for (name,) in other.execute("SELECT name FROM sqlite_master")] == ["cats"]
    other.close()


def test_a_history_of_a_later_format_is_left_alone(store, path):
    store.close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    with pytest.raises(HistoryError, match="has format 2, and this version reads up to 1"):
        HistoryStore(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(HistoryError, match=r"missing/h\.db cannot be opened: No such file or directory"):
        HistoryStore(tmp_path / "missing" / "h.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(HistoryError, match="Permission denied"):
        HistoryStore(tmp_path / "h.db")
