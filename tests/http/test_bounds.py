"""The bounds of a server never exceed what its process may open."""

import resource

import pytest

from webhook.http.connections import Bounds

BOUNDS = Bounds(connections=4096, of_address=64, idle_seconds=1.0)
NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "want_soft", "want_connections"),
    [
        pytest.param((1024, 1024), 1024, 832, id="a hard limit below the bound"),
        pytest.param((1024, 1 << 20), 65_536, 4096, id="a low soft limit is raised"),
        pytest.param((1024, NO_LIMIT), 65_536, 4096, id="also where the hard one is none"),
        pytest.param((1 << 20, 1 << 20), 1 << 20, 4096, id="a high one stays"),
        pytest.param((NO_LIMIT, NO_LIMIT), NO_LIMIT, 4096, id="no limit stays"),
        pytest.param((100, 100), 100, 32, id="a few connections in any case"),
    ],
)
def test_a_server_has_as_many_connections_as_its_files_allow(monkeypatch, limits, want_soft, want_connections):
    found = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: found.append(limits))
    assert BOUNDS.within_files().connections == want_connections
    assert found[-1] == (want_soft, limits[1])
