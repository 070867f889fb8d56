"""What an audit's report means: above all, that an index without advisories is never called clean."""

import json

import pytest

from tests.ci.audit import Clean, Unknown, Vulnerable, verdict

FINE = {"name": "aiohttp", "version": "3.14.5", "vulns": []}
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found on PyPI and could not be audited: yarl (1.25.1)"}
BAD = {
    "name": "attrs",
    "version": "26.1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["26.2", "27"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
ADVISORIES = ("attrs 26.1.0: PYSEC-1, fixed in 26.2, 27", "attrs 26.1.0: PYSEC-2, fixed in none")


@pytest.mark.parametrize(
    ("dependencies", "want"),
    [
        pytest.param([FINE], Clean(1), id="all were looked up"),
        pytest.param([FINE, BAD], Vulnerable(ADVISORIES), id="one has advisories"),
        pytest.param([SKIPPED, BAD], Vulnerable(ADVISORIES), id="what is known counts even if not all is"),
        pytest.param([FINE, SKIPPED], Unknown(f"1 of 2 were skipped; {SKIPPED['skip_reason']}"), id="one was skipped"),
        pytest.param([], Unknown("0 of 0 were skipped; "), id="nothing was looked at"),
    ],
)
def test_a_report(dependencies, want):
    assert verdict(json.dumps({"dependencies": dependencies, "fixes": []}), complaint="") == want


def test_without_a_report_the_last_output_is_the_reason():
    assert verdict("", complaint="Traceback\nno route to host\n") == Unknown("no route to host")
    assert verdict("", complaint="") == Unknown("pip-audit printed no report")
