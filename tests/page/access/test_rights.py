"""Rights are those that the API server grants, asked for with the user as it knows it."""

import json

import pytest

from webhook.cluster.reads.caller_rights import Identity
from webhook.page.access.rights import MOST_NAMESPACES, ApiRights

NINA = Identity("nina", "u1", ("ml",), {"scopes": ["a"]})


class FakeConnection:
    """Answers reviews: `allowed` are the namespaces in which pods may be listed, "" for all."""

    def __init__(self, allowed=(), *, user=None):
        self.allowed = set(allowed)
        self.user = user
        self.sent = []

    async def send(self, method, path, body, *, action):
        assert method == "POST"
        review = json.loads(body)
        self.sent.append((path.rpartition("/")[2], review["spec"], action))
        if path.endswith("tokenreviews"):
            status = {"authenticated": self.user is not None, "user": self.user or {}}
        else:
            attributes = review["spec"]["resourceAttributes"]
            assert (attributes["verb"], attributes["resource"]) == ("list", "pods")
            status = {"allowed": attributes.get("namespace", "") in self.allowed}
        return json.dumps({"status": status}).encode()


async def test_a_token_belongs_to_the_user_that_the_api_server_names():
    user = {"username": "nina", "uid": "u1", "groups": ["ml"], "extra": {"scopes": ["a"]}}
    assert await ApiRights(FakeConnection(user=user)).identity("t") == NINA
    assert await ApiRights(FakeConnection()).identity("t") is None
    assert await ApiRights(FakeConnection(user={"username": ""})).identity("t") is None


async def test_who_may_list_all_pods_sees_everything_after_one_question():
    connection = FakeConnection({""})
    viewer = await ApiRights(connection).viewer(NINA, ["a", "b"])
    assert viewer.sees_all
    [(kind, spec, _)] = connection.sent
    assert kind == "subjectaccessreviews"
    assert (spec["user"], spec["groups"], spec["extra"]) == ("nina", ["ml"], {"scopes": ["a"]})


@pytest.mark.parametrize("allowed", [set(), {"b"}, {"a", "b"}])
async def test_others_see_the_namespaces_in_which_they_may_list_pods(allowed):
    viewer = await ApiRights(FakeConnection(allowed)).viewer(NINA, ["b", "a", "b", "c"])
    assert viewer.namespaces == allowed
    assert viewer.sees_nothing is not bool(allowed)
    assert viewer.notes


async def test_namespaces_without_end_are_asked_about_up_to_a_number_and_a_note_says_so():
    connection = FakeConnection()
    viewer = await ApiRights(connection).viewer(NINA, [f"ns-{number}" for number in range(10**4)])
    assert len(connection.sent) == MOST_NAMESPACES + 1
    assert f"only the first {MOST_NAMESPACES} of 10000" in viewer.notes[1]
