import pytest

from webhook.server.http.replies import parse_duration, parse_target


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("5s", 5.0),
        ("500ms", 0.5),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("1h0m0.5s", 3600.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("100ns", 1e-7),
    ],
)
def test_durations_as_go_writes_them(text, want):
    assert parse_duration(text) == pytest.approx(want)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "0s", "5 s", "5s ", "1e3s", "5S", "inf", "nan", "٣s", "5s5", "."]
)
def test_anything_else_is_an_error_with_an_example(text):
    with pytest.raises(ValueError, match="expected a positive duration such as 5s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("raw", "path", "seconds"),
    [
        ("/mutate", "/mutate", 8.0),
        ("/mutate?", "/mutate", 8.0),
        ("/mutate?timeout=10s&timeout=1s", "/mutate", 8.0),
        ("/mutate?timeout=" + "9" * 400 + "h", "/mutate", 24.0),
    ],
)
def test_targets(raw, path, seconds):
    target = parse_target(raw)
    assert (target.path, target.work_seconds, target.timeout_problem) == (path, seconds, "")


def test_a_bad_timeout_keeps_its_path():
    target = parse_target("/validate?timeout=x")
    assert target.path == "/validate"
    assert target.timeout_problem.startswith("timeout: expected")
