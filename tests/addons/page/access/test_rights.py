"""Rights are those that the API server grants, asked for with the user as it knows it."""

import json

import pytest

from webhook.addons.page.access.access import MOST_NAMESPACES, ApiRights
from webhook.cluster.reads.installation import CallerIdentity

NINA = CallerIdentity("nina", "u1", ("ml",), {"scopes": ["a"]})


class FakeConnection:
    """Answers reviews: `allowed` are the namespaces in which pods may be listed, "" for all, or "events/NAMESPACE"."""

    def __init__(self, allowed=(), *, user=None):
        self.allowed = {each if "/" in each else f"pods/{each}" for each in allowed}
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
            assert (attributes["verb"], attributes.get("group", "")) == ("list", "")
            status = {"allowed": f"{attributes['resource']}/{attributes.get('namespace', '')}" in self.allowed}
        return json.dumps({"status": status}).encode()


async def test_a_token_belongs_to_the_user_that_the_api_server_names():
    user = {"username": "nina", "uid": "u1", "groups": ["ml"], "extra": {"scopes": ["a"]}}
    assert await ApiRights(FakeConnection(user=user)).identity("t") == NINA
    assert await ApiRights(FakeConnection()).identity("t") is None
    assert await ApiRights(FakeConnection(user={"username": ""})).identity("t") is None


ALL = ["pods/", "nodes/", "events/"]


async def test_who_may_list_all_pods_nodes_and_events_sees_everything_after_three_questions():
    connection = FakeConnection(ALL)
    viewer = await ApiRights(connection).viewer(NINA, ["a", "b"])
    assert (viewer.sees_all, viewer.events, viewer.notes) == (True, None, ())
    assert len(connection.sent) == 3
    kind, spec, _ = connection.sent[0]
    assert kind == "subjectaccessreviews"
    assert (spec["user"], spec["groups"], spec["extra"]) == ("nina", ["ml"], {"scopes": ["a"]})


@pytest.mark.parametrize("missing", ALL)
async def test_who_may_not_list_one_kind_does_not_see_it(missing):
    viewer = await ApiRights(FakeConnection({*ALL, "pods/a", "events/a"} - {missing})).viewer(NINA, ["a", "b"])
    assert viewer.namespaces == ({"a"} if missing == "pods/" else None)
    assert viewer.nodes is (missing != "nodes/")
    assert viewer.events == ({"a"} if missing == "events/" else None)
    assert viewer.sees_all is (missing == "events/")
    assert viewer.notes


@pytest.mark.parametrize("allowed", [set(), {"b"}, {"a", "b"}])
async def test_others_see_the_namespaces_in_which_they_may_list_pods(allowed):
    viewer = await ApiRights(FakeConnection({*allowed, "events/b", "events/c"})).viewer(NINA, ["b", "a", "b", "c"])
    assert viewer.namespaces == allowed
    assert viewer.events == allowed & {"b"}
    assert viewer.sees_nothing is not bool(allowed)
    assert not viewer.nodes
    assert viewer.notes


async def test_namespaces_without_end_are_asked_about_up_to_a_number_and_a_note_says_so():
    connection = FakeConnection()
    viewer = await ApiRights(connection).viewer(NINA, [f"ns-{number}" for number in range(10**4)])
    assert len(connection.sent) == MOST_NAMESPACES + 3
    assert f"only the first {MOST_NAMESPACES} of 10000" in viewer.notes[1]
