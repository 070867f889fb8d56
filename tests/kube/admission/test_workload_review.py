"""Reviews of workloads: the object as plain values."""

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import encode
from tests.examples import examples
from webhook.kube.admission.reviews import Operation, decode_workload

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8)
trees = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=12,
)


def decoded(found, **more):
    request = {"uid": "r1", "operation": "CREATE", "namespace": "team-a", "object": found, **more}
    return decode_workload(encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))


@given(st.dictionaries(st.text(max_size=5), trees, max_size=4))
@examples()
def test_the_object_is_read_as_it_was_written(document):
    assert decoded(document).document == document


def test_the_request_is_read_with_the_object():
    found = decoded(None, operation="DELETE", dryRun=True, userInfo={"username": "alice@example.com"})
    want = ("r1", Operation.DELETE, "team-a", True, "alice@example.com", None)
    assert found == want
    assert decoded({}).username == ""
