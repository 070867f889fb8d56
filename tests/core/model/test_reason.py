"""The text of a refusal: limits first, after the prefix that controllers retry on."""

from webhook.core.model.reasons import LIMIT_CODES, Code, Reason, refusal_text

LIMIT = Reason(Code.TEAM_LIMIT_EXCEEDED, "team a: requested 2, limit 1")
OTHER = Reason(Code.NEVER_FITS, "no node could hold the pod")


def test_limits_come_first_after_the_prefix():
    want = "exceeded quota: team a: requested 2, limit 1 (TeamLimitExceeded); no node could hold the pod (NeverFits)"
    assert refusal_text((OTHER, LIMIT)) == want


def test_a_refusal_without_a_limit_is_not_retried():
    assert refusal_text((OTHER,)) == "no node could hold the pod (NeverFits)"


def test_every_limit_has_the_prefix():
    assert {code for code in Code if refusal_text((Reason(code, "x"),)).startswith("exceeded quota: ")} == LIMIT_CODES
