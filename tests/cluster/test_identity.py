"""Who we are to the API server."""

import pytest

from tests.cluster.fake_api import Answer, Body
from webhook.cluster.errors import ClusterError
from webhook.cluster.identity import own_username


async def test_the_api_server_says_as_whom_it_knows_us(api, connection):
    api.faults["post"].append(Body(b'{"status":{"userInfo":{"username":"system:serviceaccount:x:y","groups":["g"]}}}'))
    assert await own_username(connection) == "system:serviceaccount:x:y"
    assert api.asked[-1].path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.mark.parametrize("fault", [Answer(403), Body(b"{}"), Body(b"<html>")])
async def test_an_answer_that_names_nobody_is_an_error(api, connection, fault):
    api.faults["post"].append(fault)
    with pytest.raises(ClusterError, match="cannot create selfsubjectreviews"):
        await own_username(connection)
