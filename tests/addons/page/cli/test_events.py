"""Events of Fairgate are listed where they may be: in all namespaces, or in those of the user."""

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import write_kubeconfig
from webhook.addons.page.live.cluster_state import COMPONENTS
from webhook.addons.page.run import read_events

EVENTS = "/api/v1/events"


def put(api, name, namespace, component="fairgate"):
    api.put(EVENTS, name, namespace=namespace, metadata={}, source={"component": component}, reason="Refused")


async def test_all_are_listed_where_that_is_allowed(api, tmp_path):
    put(api, "e1", "vision")
    found, note = await read_events(write_kubeconfig(tmp_path / "config", api.url), ())
    assert (found[0]["reason"], note) == ("Refused", "")
    selectors = [asked.query.get("fieldSelector") for asked in api.asked if asked.path == EVENTS]
    assert selectors == [f"source={each}" for each in COMPONENTS]


async def test_those_of_the_users_namespaces_where_not_all_may_be_listed(api, tmp_path):
    api.faults[f"list {EVENTS}"].append(Answer(403))
    api.faults["list /api/v1/namespaces/other/events"].append(Answer(403))
    _, note = await read_events(write_kubeconfig(tmp_path / "config", api.url), ("vision", "other"))
    assert note.startswith("decisions that only Events report are of vision")
    assert "other" not in note.partition(":")[0]
