import pytest

from tests.blackbox.api import Api
from tests.blackbox.objects import FOUR_NODES
from tests.blackbox.server import serving

TWO_TEAMS = {
    "teams": [
        {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 20}},
        {"name": "b", "namespaces": ["team-b"], "gpus": {"guaranteed": 20, "limit": 20}},
        {"name": "borrower", "namespaces": ["team-c"], "gpus": {"guaranteed": 20, "limit": 40}},
        {
            "name": "small",
            "namespaces": ["team-d"],
            "gpus": {"guaranteed": 4, "limit": 8},
            "perPod": {"limit": 4},
            "perUser": {"limit": 6},
        },
    ],
    "exempt": {"namespaces": ["kube-system"]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Four empty nodes of ten GPUs, four teams: one server for all tests of a file."""
    with serving(tmp_path_factory.mktemp("fairgate"), policy=TWO_TEAMS, world=FOUR_NODES) as running:
        yield running


@pytest.fixture
def api(server):
    """The API server in front of it; after the test all pods are deleted, and the ledger must be empty."""
    api = Api(server)
    yield api
    api.delete_all()
    assert server.all_charged() == {}
