"""Everything that is wrong gets a clear answer on both endpoints; nothing is charged, and the server lives on."""

import gzip
import http.client
import json
import socket

import pytest

from tests.blackbox.objects import GPU, encode, pod, review

ENDPOINTS = ("/mutate", "/validate")
GOOD = review(pod("p", "team-a"), uid="good")


def body(**changes):
    return encode(GOOD | changes)


def request(**changes):
    return encode(GOOD | {"request": GOOD["request"] | changes})


def without(key):
    return encode(GOOD | {"request": {k: v for k, v in GOOD["request"].items() if k != key}})


def deployment():
    metadata = {"name": "web", "namespace": "team-a"}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}}
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    return encode(review(manifest, uid="u", kind=kind, resource=resource))


def nested(depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    return encode(GOOD).replace(b'"status":{}', b'"status":{},"deep":' + deep.encode())


MALFORMED = {
    "empty body": (b"", "the body is empty: expected an AdmissionReview"),
    "malformed JSON": (b"{", "not valid JSON"),
    "half a review": (encode(GOOD)[:-20], "not valid JSON"),
    "two reviews": (encode(GOOD) * 2, "not valid JSON"),
    "NaN": (encode(GOOD).replace(b'"creationTimestamp":null', b'"x":NaN'), "not valid JSON"),
    "Infinity": (encode(GOOD).replace(b'"creationTimestamp":null', b'"x":-Infinity'), "not valid JSON"),
    "not UTF-8": (encode(GOOD).replace(b"train", b"tr\xff\xfein"), "not UTF-8"),
    "half a surrogate": (encode(GOOD).replace(b"train", b"\\ud800"), "not valid JSON"),
    "YAML": (b"apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\n", "not valid JSON"),
    "a number": (b"7", "expected object, got int"),
    "a list": (b"[]", "expected object, got array"),
    "null": (b"null", "expected object, got null"),
    "an empty object": (b"{}", "expected admission.k8s.io/v1 AdmissionReview, got no apiVersion no kind"),
    "v1beta1": (body(apiVersion="admission.k8s.io/v1beta1"), "expected admission.k8s.io/v1 AdmissionReview"),
    "another kind": (body(kind="SubjectAccessReview"), "got admission.k8s.io/v1 SubjectAccessReview"),
    "a bare pod": (encode(pod("p", "team-a")), "expected admission.k8s.io/v1 AdmissionReview, got v1 Pod"),
    "no request": (body(request=None), "request is missing"),
    "an answer": (body(request=None, response={"uid": "u", "allowed": True}), "request is missing"),
    "a request that is none": (body(request=[]), "request: expected object | null, got array"),
    "no uid": (without("uid"), "request.uid is missing"),
    "no operation": (without("operation"), "missing required field operation"),
    "another operation": (request(operation="PATCH"), "request.operation: invalid enum value 'PATCH'"),
    "no pod": (request(object=None), "request.object is missing"),
    "an update without the old pod": (request(operation="UPDATE"), "request.oldObject is missing"),
    "a delete without the old pod": (request(operation="DELETE", object=None), "request.oldObject is missing"),
    "a Deployment": (deployment(), "expected pods, got deployments.apps"),
    "a Deployment as pods": (
        request(object={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {}}),
        "expected v1 Pod, got apps/v1 Deployment",
    ),
    "a subresource": (request(subResource="ephemeralcontainers"), "pods/ephemeralcontainers"),
    "a pod without spec": (request(object={"apiVersion": "v1", "kind": "Pod", "metadata": {}}), "field spec"),
    "labels that are none": (
        request(object=pod("p", "team-a") | {"metadata": {"labels": {"a": 1}}}),
        "request.object.metadata.labels[]: expected str, got int",
    ),
    "deep nesting": (nested(100_000), "nested too deeply"),
    "deep lists": (b"[" * 4_000_000, "expected object, got array"),
    "deep nesting, open": (b'{"request":' * 200_000, "nested too deeply"),
}


@pytest.fixture(autouse=True)
def alive_and_uncharged(server):
    """After every test: the server answers, decides, and has charged nothing."""
    yield
    assert server.ask("GET", "/healthz").status == 200
    reply = server.post("/mutate", encode(GOOD))
    assert reply.status == 200
    assert reply.json["response"]["allowed"]
    assert server.all_charged() == {}


def assert_refused(reply, status, text):
    assert reply.status == status, reply.text
    body = reply.json
    assert text in body["error"]
    assert body["code"]
    assert len(reply.text) < 1000
    assert "Traceback" not in reply.text
    assert ".py" not in reply.text


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("content", "want"), MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_not_a_review_of_a_pod_is_a_400(server, path, content, want):
    assert_refused(server.post(path, content), 400, want)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_a_415(server, path, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    assert_refused(server.post(path, encode(GOOD), headers), 415, "expected Content-Type application/json")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_content_types_are_accepted(server, content_type):
    assert server.post("/mutate", encode(GOOD), {"Content-Type": content_type}).status == 200


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_compressed_body_is_a_415(server, path):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert_refused(server.post(path, gzip.compress(encode(GOOD)), headers), 415, "must not be compressed")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_of_9_mib_is_a_413(server, path):
    content = encode(GOOD | {"padding": "x" * (9 * 1024**2)})
    reply = server.post(path, content)
    assert_refused(reply, 413, "larger than 8 MiB")
    assert reply.headers["connection"] == "close", "the rest of the body is not read, so no request can follow"


def test_a_body_of_almost_8_mib_is_accepted(server):
    content = encode(GOOD | {"padding": "x" * (8 * 1024**2 - 4096)})
    assert server.post("/mutate", content).json["response"]["allowed"]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_that_ends_early_decides_and_charges_nothing(server, path):
    before = server.lines("decision")
    with server.tls().wrap_socket(
        socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1"
    ) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
        connection.sendall(head.encode() + encode(GOOD))
        connection.unwrap()  # returns when the server has seen the end
    server.post("/mutate", encode(GOOD))
    server.wait_until(lambda: server.lines("decision") != before)
    assert len(server.lines("decision")) == len(before) + 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/mutate", 405),
        ("PUT", "/validate", 405),
        ("POST", "/healthz", 405),
        ("GET", "/", 404),
        ("POST", "/mutate/", 404),
        ("POST", "/../mutate", 404),
    ],
)
def test_other_methods_and_paths(server, method, path, status):
    assert_refused(server.ask(method, path, encode(GOOD), {"Content-Type": "application/json"}), status, "")


def test_metrics_for_a_scraper_with_invalid_headers(server):
    assert server.ask("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=new"}).status == 200


def test_bytes_that_are_not_http_are_answered_and_the_connection_closed(server):
    with server.tls().wrap_socket(
        socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1"
    ) as connection:
        connection.sendall(b"\x00\x01 hello\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b"Traceback" not in answer


def test_plain_http_gets_no_answer_and_has_no_effect(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", "/healthz")
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        connection.getresponse()
    connection.close()


@pytest.mark.parametrize("timeout", ["", "5", "-5s", "soon", "0s"])
def test_an_invalid_timeout_is_a_400(server, timeout):
    assert_refused(server.post(f"/mutate?timeout={timeout}", encode(GOOD)), 400, "expected a positive duration")


# -- reviews that are well formed, of pods that cannot be


def gpus(request, limit):
    return {
        **({"requests": {GPU: request, "cpu": "1"}} if request is not None else {}),
        **({"limits": {GPU: limit}} if limit is not None else {}),
    }


AMOUNTS = {
    "negative": (gpus("-1", "-1"), "cannot be negative"),
    "negative number": (gpus(-1, -1), "cannot be negative"),
    "fractional": (gpus("0.5", "0.5"), "counted in whole numbers"),
    "fractional number": (gpus(1.5, 1.5), "counted in whole numbers"),
    "milli": (gpus("500m", "500m"), "counted in whole numbers"),
    "huge": (gpus("1000000000", "1000000000"), "check the number"),
    "huge with suffix": (gpus("9E", "9E"), "check the number"),
    "beyond 64 bits": (gpus("99999999999999999999", "99999999999999999999"), "the largest amount Kubernetes can hold"),
    "beyond 64 bits, number": (gpus(10**30, 10**30), "the largest amount Kubernetes can hold"),
    "beyond any number": (gpus("1e999999999", "1e999999999"), "write the amount you mean"),
    "request below limit": (gpus("1", "2"), "request 1 and limit 2 differ"),
    "request above limit": (gpus("3", "2"), "request 3 and limit 2 differ"),
    "request alone": (gpus("2", None), "has no limit"),
    "a word": (gpus("two", "two"), "'two' is not a quantity"),
    "NaN": (gpus("NaN", "NaN"), "'NaN' is not a quantity"),
    "infinity": (gpus("inf", "inf"), "'inf' is not a quantity"),
    "empty": (gpus("", ""), "'' is not a quantity"),
    "true": (gpus(True, True), "expected int | float | str, got bool"),
    "null": (gpus(None, None) | {"limits": {GPU: None}}, "got null"),
    "a list": ({"limits": [GPU]}, "expected object"),
    "other digits": (gpus("٣", "٣"), "is not a quantity"),
    "very long": (gpus("1" * 5000, "1" * 5000), "is not a quantity"),
    "negative cpu": ({"requests": {"cpu": "-1"}, "limits": {GPU: "1"}}, "cpu is -1; an amount cannot be negative"),
}


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("resources", "want"), AMOUNTS.values(), ids=AMOUNTS)
def test_invalid_amounts_are_refused_with_a_message(server, path, resources, want):
    manifest = pod("p", "team-a")
    manifest["spec"]["containers"][0]["resources"] = resources
    reply = server.post(path, encode(review(manifest, uid="u")))
    assert reply.status == 200, reply.text
    response = reply.json["response"]
    assert (response["uid"], response["allowed"]) == ("u", False)
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    assert "container train: " in response["status"]["message"]
    assert want in response["status"]["message"]
    assert "InvalidRequest" in response["status"]["message"]
    assert len(response["status"]["message"]) < 1000


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_unknown_team_is_refused_by_name(server, path):
    response = server.post(path, encode(review(pod("p", "unowned"), uid="u"))).json["response"]
    assert response["status"]["code"] == 403
    message = response["status"]["message"]
    assert message.startswith("namespace unowned belongs to no team")
    assert "teams: a, b, borrower, small" in message
    assert "UnknownTeam" in message


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"affinity": []}, "spec.affinity: expected object"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[]: expected str, got int"),
        ({"tolerations": {}}, "spec.tolerations: expected array, got object"),
        ({"topologySpreadConstraints": 7}, "spec.topologySpreadConstraints: expected array"),
        ({"overhead": {"cpu": "much"}}, "overhead: cpu: 'much' is not a quantity"),
    ],
)
def test_fields_of_the_wrong_type_are_refused_with_their_path(server, path, spec, want):
    response = server.post(path, encode(review(pod("p", "team-a", **spec), uid="u"))).json["response"]
    assert not response["allowed"]
    assert want in response["status"]["message"]


MARKS = [
    "",
    "{}",
    "null",
    "[",
    '"text"',
    "[" * 16_000,
    '{"demand":{"nvidia.com/gpu":Infinity}}',
    '{"demand":{"nvidia.com/gpu":1e999},"gpus":"1","mode":"auto","nodes":[],"code":"WithinShare","policy":"x","at":""}',
    '{"demand":{"nvidia.com/gpu":NaN},"gpus":"1","mode":"auto","nodes":[],"code":"WithinShare","policy":"x","at":""}',
    '{"demand":{"nvidia.com/gpu":"' + "9" * 5000 + '"}}',
    '{"demand":{},"gpus":"1","mode":"auto","nodes":["\\ud800"],"code":"WithinShare","policy":"x","user":"\\udfff"}',
    '{"demand":{},"gpus":"1","mode":[],"nodes":7,"code":{},"policy":"x","at":"","pool":[]}',
]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark[:40] or "empty")
def test_a_forged_decision_is_not_trusted(server, mark):
    manifest = pod("p", "team-a", gpus=2)
    manifest["metadata"] |= {
        "labels": {"fairgate.dev/team": "a", "fairgate.dev/tier": "guaranteed"},
        "annotations": {"fairgate.dev/decision": mark},
    }
    refused = server.post("/validate", encode(review(manifest, uid="u"))).json["response"]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
    assert "MutationAltered" in refused["status"]["message"]
    advice = server.post("/mutate", encode(review(manifest, uid="u"))).json["response"]
    assert advice["allowed"]
    assert "patch" in advice


def test_an_oversized_decision_is_refused_without_parsing(server):
    manifest = pod("p", "team-a", gpus=2)
    manifest["metadata"]["annotations"] = {"fairgate.dev/decision": "[" * 100_000}
    for path in ("/mutate", "/validate"):
        refused = server.post(path, encode(review(manifest, uid="u"))).json["response"]
        assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
        assert "(TooLarge)" in refused["status"]["message"]


def test_errors_are_counted_and_logged_without_tracebacks(server):
    server.post("/mutate", b"{")
    assert {labels["status"] for labels, _ in server.samples("fairgate_http_errors_total")} >= {"400"}
    line = server.lines("request refused")[-1]
    assert (line["status"], line["code"], line["level"]) == (400, "MalformedReview", "warning")
    assert json.dumps(line).count("Traceback") == 0
