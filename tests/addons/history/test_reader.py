"""Reading histories: of this and other versions, damaged ones, and files that are none."""

import sqlite3

import pytest

from tests.addons.history.support import T0, row
from webhook.addons.history.reader import read_usage
from webhook.addons.history.store import Batch, HistoryError, HistoryStore

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
