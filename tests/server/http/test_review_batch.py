"""Reviews that arrive together are decided before a response is written, within bounds, and none is lost."""

import asyncio

import pytest

from webhook.server.http import plain_reviews
from webhook.server.http.plain_reviews import MAX_REVIEWS, MAX_SECONDS, ReviewBatch
from webhook.server.http.replies import Reply


class Reviews:
    """Answers each body with itself; notes decisions and responses in the order in which they happen."""

    is_draining = False

    def __init__(self):
        self.done = []
        self.clock = 0.0
        self.seconds = 0.0
        self.charge = None
        self.broken = ()

    def answers(self, path):
        return path == "/mutate"

    def answer(self, _head, body, _caller):
        self.done.append(f"decide {body}")
        self.clock += self.seconds
        if f"decide {body}" in self.broken:
            raise RuntimeError(body)
        return Reply(body) if self.charge is None else self._answer_later(body)

    async def _answer_later(self, body):
        await self.charge.wait()
        return Reply(body)


class Caller:
    transport = None
    remote = "127.0.0.1"
    arrived = 0.0

    def __init__(self, reviews):
        self._reviews = reviews

    def is_gone(self):
        return False

    def respond(self, reply):
        self._reviews.done.append(f"respond {reply.body}")
        if f"respond {reply.body}" in self._reviews.broken:
            raise RuntimeError(reply.body)


@pytest.fixture
def reviews(monkeypatch):
    made = Reviews()
    monkeypatch.setattr(plain_reviews, "monotonic", lambda: made.clock)
    return made


async def answered(reviews, count):
    """Have so many reviews decided in one turn, and let the event loop turn until all is done."""
    batch = ReviewBatch(reviews, asyncio.get_running_loop())
    for number in range(count):
        batch.add(Caller(reviews), None, number)
    for _ in range(10 + count):
        await asyncio.sleep(0)
    return reviews.done


def decisions_and_responses(first, last):
    numbers = range(first, last)
    return [f"decide {number}" for number in numbers] + [f"respond {number}" for number in numbers]


async def test_all_are_decided_before_a_response_is_written(reviews):
    assert await answered(reviews, 5) == decisions_and_responses(0, 5)


async def test_of_very_many_the_first_do_not_wait_for_the_last(reviews):
    done = await answered(reviews, MAX_REVIEWS + 8)
    assert done == decisions_and_responses(0, MAX_REVIEWS) + decisions_and_responses(MAX_REVIEWS, MAX_REVIEWS + 8)


async def test_a_review_that_takes_long_delays_no_response_but_its_own(reviews):
    reviews.seconds = 1.5 * MAX_SECONDS
    done = await answered(reviews, 3)
    assert done == [step for number in range(3) for step in decisions_and_responses(number, number + 1)]


async def test_a_finished_response_waits_for_one_review_that_takes_long_and_for_no_second(reviews):
    reviews.seconds = 0.75 * MAX_SECONDS
    assert await answered(reviews, 4) == decisions_and_responses(0, 2) + decisions_and_responses(2, 4)


async def test_other_work_of_the_event_loop_has_its_turn_between_long_reviews(reviews):
    reviews.seconds = 1.5 * MAX_SECONDS
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(reviews.done.append, "other"))
    done = await answered(reviews, 3)
    assert done.index("other") < done.index("decide 2")


async def test_charges_that_are_written_together_are_answered_together(reviews):
    reviews.charge = asyncio.Event()
    assert await answered(reviews, 3) == ["decide 0", "decide 1", "decide 2"]
    reviews.charge.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert reviews.done[3:] == ["respond 0", "respond 1", "respond 2"]


async def test_very_many_charges_are_all_answered_in_order(reviews):
    reviews.charge = asyncio.Event()
    count = 2 * MAX_REVIEWS + 1
    await answered(reviews, count)
    reviews.charge.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert reviews.done[count:] == [f"respond {number}" for number in range(count)]


@pytest.mark.parametrize("broken", ["decide 1", "respond 1"])
async def test_what_goes_wrong_with_one_is_reported_and_loses_no_other(reviews, broken):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    reviews.broken = (broken,)
    done = await answered(reviews, 4)
    assert [f"respond {number}" in done for number in range(4)] == [True, broken == "respond 1", True, True]
    assert reported == ["1"]
