"""What is held by key: ended, lost, known by name only, or not understood."""

from dataclasses import replace

import pytest

from tests.cluster.support.stores import Book, Meta, Spec, Thing
from webhook.cluster.watch.store import Mirror


def thing(gpus, *, name="p", uid="u1"):
    return Thing(Meta(name, uid, "vision"), Spec(gpus))


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def lost():
    return []


@pytest.fixture
def mirror(book, lost):
    def lose(uid):
        lost.append(uid)
        book.remove(uid)

    return Mirror(replace(book.kind(), lose=lose, tracks_names=True))


def test_what_ends_is_removed_and_what_is_gone_is_lost(mirror, book, lost):
    mirror.take(thing(1))
    mirror.take(thing(0))
    assert (book.held, lost) == ({}, [])
    mirror.take(thing(1))
    mirror.drop(thing(1))
    assert (book.held, lost) == ({}, ["u1"])


@pytest.mark.parametrize("is_listed_again", [True, False], ids=["made again under its name", "missing from a list"])
def test_a_deletion_that_nobody_told_of_is_a_loss(mirror, book, lost, is_listed_again):
    mirror.take(thing(1))
    if is_listed_again:
        mirror.take(thing(2, uid="u2"))
    else:
        mirror.forget("vision/p")
    assert lost == ["u1"]
    assert book.held == ({"u2": 2} if is_listed_again else {})


def test_the_name_of_what_is_not_kept_is_known_until_it_is_gone(mirror, lost):
    mirror.take(thing(0))
    assert mirror.handle("vision/p") == ""
    assert "vision/p" in mirror.keys
    mirror.take(thing(1))
    assert mirror.handle("vision/p") == "u1"
    mirror.take(thing(0))
    mirror.drop(thing(0))
    assert mirror.handle("vision/p") is None
    assert lost == [], "it ended before it went"


def test_of_other_kinds_no_such_name_is_kept(book):
    mirror = Mirror(book.kind())
    mirror.take(thing(0))
    assert mirror.handle("vision/p") is None


def salvaging(book):
    return Mirror(replace(book.kind(), salvage=lambda found: thing(9) if found else None))


def test_what_makes_no_sense_counts_by_what_can_be_read_of_it(book, caplog):
    mirror = salvaging(book)
    mirror.take(thing(-1))
    assert (book.held, mirror.rejected) == ({"u1": 9}, 1)
    assert "it counts by what was, or can be, read of it: pods vision/p: negative" in caplog.text
    mirror.drop(thing(-1))
    assert book.held == {}


def test_an_earlier_state_is_better_than_what_can_be_salvaged(book):
    mirror = salvaging(book)
    mirror.take(thing(3))
    mirror.reject("vision/p", ValueError("?"), b"{}")
    assert (book.held, mirror.rejected) == ({"u1": 3}, 1)


def test_what_nothing_can_be_read_of_is_told_of(book, caplog):
    mirror = salvaging(book)
    mirror.reject("vision/p", ValueError("?"))
    assert book.held == {}
    assert "it does not count: pods vision/p" in caplog.text
