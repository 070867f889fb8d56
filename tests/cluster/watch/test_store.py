"""Objects by key: ended, deleted, known by name only, or invalid."""

from dataclasses import replace

import pytest

from tests.cluster.support.stores import Book, Meta, Spec, Thing
from webhook.cluster.watch.event_stream import ObjectStore


def thing(gpus, *, name="p", uid="u1"):
    return Thing(Meta(name, uid, "vision"), Spec(gpus))


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def lost():
    return []


@pytest.fixture
def store(book, lost):
    def lose(uid, *, is_watched):
        lost.append((uid, is_watched))
        book.remove(uid)

    return ObjectStore(replace(book.kind(), lose=lose, tracks_names=True))


def test_an_ended_object_is_removed_and_a_deleted_one_is_lost(store, book, lost):
    store.apply(thing(1))
    store.apply(thing(0))
    assert (book.held, lost) == ({}, [])
    store.apply(thing(1))
    store.delete(thing(1))
    assert (book.held, lost) == ({}, [("u1", True)])


@pytest.mark.parametrize("is_listed_again", [True, False], ids=["made again under its name", "missing from a list"])
def test_a_missed_deletion_is_a_loss(store, book, lost, is_listed_again):
    store.apply(thing(1))
    if is_listed_again:
        store.apply(thing(2, uid="u2"))
    else:
        store.forget("vision/p")
    assert lost == [("u1", False)]
    assert book.held == ({"u2": 2} if is_listed_again else {})


def test_the_name_of_an_object_that_is_not_stored_is_known_until_its_deletion(store, lost):
    store.apply(thing(0))
    assert store.handle("vision/p") == ""
    assert "vision/p" in store.keys
    store.apply(thing(1))
    assert store.handle("vision/p") == "u1"
    store.apply(thing(0))
    store.delete(thing(0))
    assert store.handle("vision/p") is None
    assert lost == [], "it ended before it went"


def test_other_kinds_keep_no_such_name(book):
    store = ObjectStore(book.kind())
    store.apply(thing(0))
    assert store.handle("vision/p") is None


def salvaging(book):
    return ObjectStore(replace(book.kind(), salvage=lambda found: thing(9) if found else None))


def test_an_invalid_object_counts_by_its_readable_part(book, caplog):
    store = salvaging(book)
    store.apply(thing(-1))
    assert (book.held, store.rejected) == ({"u1": 9}, 1)
    assert "it counts by its earlier or its readable part: pods vision/p: negative" in caplog.text
    store.delete(thing(-1))
    assert book.held == {}


def test_an_earlier_state_is_preferred_to_the_readable_part(book):
    store = salvaging(book)
    store.apply(thing(3))
    store.reject("vision/p", ValueError("?"), b"{}")
    assert (book.held, store.rejected) == ({"u1": 3}, 1)


def test_an_unreadable_object_is_logged(book, caplog):
    store = salvaging(book)
    store.reject("vision/p", ValueError("?"))
    assert book.held == {}
    assert "it does not count: pods vision/p" in caplog.text
