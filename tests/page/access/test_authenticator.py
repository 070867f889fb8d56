"""Signing in: a URL opens once; tokens are asked about once a minute, and not without end."""

import asyncio

import pytest

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.reads.installation import CallerIdentity
from webhook.page.access.access import (
    CHECK_SECONDS,
    OF_ADDRESS,
    OF_CLIENT,
    SESSIONS,
    SESSIONS_OF_ONE,
    UNREACHABLE_SECONDS,
    Caller,
    Origin,
    TokenAuthenticator,
    TooManySignInsError,
    UrlAuthenticator,
)
from webhook.page.views.teams import EVERYTHING, Viewer


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeRights:
    def __init__(self):
        self.asked = []
        self.judged = 0
        self.namespaces = frozenset({"nlp"})
        self.error = None
        self.valid = "good-"

    async def identity(self, token):
        self.asked.append(token)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        name, _, number = token.removeprefix("good-").partition("#")
        extra = {"authentication.kubernetes.io/credential-id": [number]}
        return CallerIdentity(name, extra=extra) if token.startswith(self.valid) else None

    async def viewer(self, identity, namespaces):
        self.judged += 1
        return Viewer(identity.name, self.namespaces & set(namespaces))


@pytest.fixture
def rights():
    return FakeRights()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authenticator(rights, clock):
    return TokenAuthenticator(rights, namespaces=lambda: ("nlp", "vision"), clock=clock)


async def test_the_url_opens_the_page_once():
    authenticator = UrlAuthenticator()
    assert await authenticator.sign_in("guess") == ""
    cookie = await authenticator.sign_in(authenticator.token)
    assert await authenticator.viewer(Caller(cookie)) is EVERYTHING
    assert await authenticator.sign_in(authenticator.token) == ""
    assert await authenticator.viewer(Caller("other")) is None
    assert await authenticator.viewer(Caller(bearer=authenticator.token)) is None


async def test_a_token_enters_with_the_rights_that_it_has(authenticator):
    assert await authenticator.sign_in("bad") == ""
    assert await authenticator.sign_in("") == ""
    assert await authenticator.sign_in("good-" + "x" * 10**6) == ""
    cookie = await authenticator.sign_in(" good-nina\n")
    assert await authenticator.viewer(Caller(cookie)) == Viewer("nina", frozenset({"nlp"}))
    assert await authenticator.viewer(Caller(bearer="good-nina")) == Viewer("nina", frozenset({"nlp"}))
    assert await authenticator.viewer(Caller(bearer="bad")) is None
    assert await authenticator.viewer(Caller()) is None


async def test_rights_that_end_are_noticed_within_a_minute(authenticator, rights, clock):
    cookie = await authenticator.sign_in("good-nina")
    rights.namespaces = frozenset()
    clock.now += 59
    assert not (await authenticator.viewer(Caller(cookie))).sees_nothing
    clock.now += 2
    assert (await authenticator.viewer(Caller(cookie))).sees_nothing
    assert rights.asked == ["good-nina"] * 2


async def test_rights_are_asked_again_after_a_minute_however_long_the_first_answer_took(authenticator, rights, clock):
    asked = rights.viewer

    async def slow(identity, namespaces):
        clock.now += 3
        return await asked(identity, namespaces)

    rights.viewer = slow
    cookie = await authenticator.sign_in("good-nina")
    rights.namespaces = frozenset()
    clock.now += 57.5
    assert (await authenticator.viewer(Caller(cookie))).sees_nothing
    assert rights.judged == 2


async def test_requests_at_the_same_time_ask_once(authenticator, rights):
    await asyncio.gather(*(authenticator.viewer(Caller(bearer="good-nina")) for _ in range(50)))
    assert rights.asked == ["good-nina"]


async def test_guesses_without_end_do_not_reach_the_api_server(authenticator, rights, clock):
    known = await authenticator.sign_in("good-nina")
    for number in range(OF_CLIENT):
        await authenticator.sign_in(f"guess-{number}")
    with pytest.raises(TooManySignInsError):
        await authenticator.sign_in("another guess")
    assert len(rights.asked) == 1 + OF_CLIENT
    assert await authenticator.viewer(Caller(known)) is not None, "who is in stays in"
    clock.now += 61
    for number in range(OF_CLIENT):
        await authenticator.sign_in(f"guess-{number}")
    assert await authenticator.viewer(Caller(known)) is not None, "and is asked about again in spite of the guesses"


MALLORY = Origin("10.6.6.6")


async def test_guesses_of_one_address_keep_no_one_at_another_address_out(authenticator):
    for number in range(OF_CLIENT):
        await authenticator.viewer(Caller(bearer=f"guess-{number}", origin=MALLORY))
    with pytest.raises(TooManySignInsError):
        await authenticator.sign_in("good-nina", MALLORY)
    assert await authenticator.sign_in("good-nina", Origin("10.0.0.1"))


async def test_guesses_through_a_proxy_lock_out_no_other_client_of_it(authenticator):
    for number in range(OF_CLIENT):
        await authenticator.sign_in(f"guess-{number}", Origin("10.0.0.9", "203.0.113.66"))
    with pytest.raises(TooManySignInsError):
        await authenticator.sign_in("guess", Origin("10.0.0.9", "203.0.113.66"))
    assert await authenticator.sign_in("good-nina", Origin("10.0.0.9", "198.51.100.1"))


async def test_who_makes_up_clients_exceeds_only_the_bound_of_a_client(authenticator, rights):
    for number in range(OF_ADDRESS):
        await authenticator.sign_in(f"guess-{number}", Origin("10.6.6.6", f"192.0.2.{number}"))
    with pytest.raises(TooManySignInsError):
        await authenticator.sign_in("guess", Origin("10.6.6.6", "198.51.100.7"))
    assert len(rights.asked) == OF_ADDRESS
    assert await authenticator.sign_in("good-nina", Origin("10.0.0.1"))


async def test_valid_tokens_are_no_guesses(authenticator):
    for number in range(3 * OF_CLIENT):
        assert await authenticator.sign_in(f"good-user{number}")


async def test_a_thousand_sign_ins_of_one_person_end_no_session_of_another(authenticator, rights):
    alice = await authenticator.sign_in("good-alice")
    mine = [await authenticator.sign_in("good-mallory") for _ in range(SESSIONS)]
    assert await authenticator.viewer(Caller(alice)) is not None
    assert sum([await authenticator.viewer(Caller(each)) is not None for each in mine]) == SESSIONS_OF_ONE
    assert rights.asked == ["good-alice", "good-mallory"]


async def test_service_accounts_of_a_namespace_are_one_person(authenticator):
    names = [f"good-system:serviceaccount:evil:robot{number}" for number in range(15)]
    cookies = [await authenticator.sign_in(name) for name in names]
    kept = [await authenticator.viewer(Caller(each)) is not None for each in cookies]
    assert kept == [False] * 5 + [True] * SESSIONS_OF_ONE
    assert await authenticator.sign_in("good-system:serviceaccount:other:robot")


async def test_new_tokens_of_a_user_ask_for_no_right_again_and_push_out_no_other_user(authenticator, rights):
    alice = await authenticator.sign_in("good-alice")
    for number in range(200):
        assert await authenticator.viewer(Caller(bearer=f"good-mallory#{number}")) is not None
    assert rights.judged == 2
    asked = len(rights.asked)
    assert await authenticator.viewer(Caller(alice)) is not None
    assert len(rights.asked) == asked


async def test_a_person_of_many_users_is_asked_about_so_often_and_no_other_person_waits(authenticator):
    for number in range(OF_CLIENT):
        assert await authenticator.sign_in(f"good-system:serviceaccount:evil:robot{number}")
    with pytest.raises(TooManySignInsError):
        await authenticator.sign_in("good-system:serviceaccount:evil:last")
    assert await authenticator.sign_in("good-nina")


async def test_sessions_end(authenticator, clock):
    last = await authenticator.sign_in("good-nina")
    clock.now += 12 * 3600 + 1
    assert await authenticator.viewer(Caller(last)) is None


async def test_who_is_in_stays_in_for_a_bounded_time_while_the_api_server_cannot_be_reached(
    authenticator, rights, clock
):
    cookie = await authenticator.sign_in("good-nina")
    rights.error = ClusterError("cannot create tokenreviews: connection refused")
    clock.now += CHECK_SECONDS + 1
    seen = [await authenticator.viewer(Caller(cookie)) for _ in range(5)]
    assert {each.name for each in seen} == {"nina"}
    assert len(rights.asked) == 2, "not asked with each request"
    with pytest.raises(ClusterError):
        await authenticator.sign_in("good-bob")
    clock.now += UNREACHABLE_SECONDS
    with pytest.raises(ClusterError):
        await authenticator.viewer(Caller(cookie))


@pytest.mark.parametrize("status", [401, 403])
async def test_after_a_refusal_no_viewer_stays_in(authenticator, rights, clock, status):
    cookie = await authenticator.sign_in("good-nina")
    clock.now += CHECK_SECONDS + 1
    rights.error = ApiError("cannot create tokenreviews", status=status)
    with pytest.raises(ApiError):
        await authenticator.viewer(Caller(cookie))
    rights.error = ClusterError("cannot create tokenreviews: connection refused")
    with pytest.raises(ClusterError):
        await authenticator.viewer(Caller(cookie))


async def test_a_token_that_ended_lets_no_viewer_in_however_the_api_server_is(authenticator, rights, clock):
    cookie = await authenticator.sign_in("good-nina")
    clock.now += CHECK_SECONDS + 1
    rights.valid = "nobody-"
    assert await authenticator.viewer(Caller(cookie)) is None
    rights.error = ClusterError("cannot create tokenreviews: connection refused")
    clock.now += CHECK_SECONDS + 1
    with pytest.raises(ClusterError):
        await authenticator.viewer(Caller(cookie))


async def test_a_session_ends_by_signing_out_and_no_other_does(authenticator):
    cookie, other = [await authenticator.sign_in("good-nina") for _ in range(2)]
    authenticator.sign_out(cookie)
    authenticator.sign_out("unknown")
    assert await authenticator.viewer(Caller(cookie)) is None
    assert await authenticator.viewer(Caller(other)) is not None
