"""A LeaderContext of the parts that a test has."""

from webhook.server.leader.registration_loop import LeaderContext


def leader_context(world, **parts):
    """Return a context that leads on a fresh world; a test that uses another part gives it."""
    nothing = {"connection": None, "ledger": None, "events": None, "logs": None}
    leads = {"is_leading": lambda: True, "why_stale": lambda: None, "notify_owner": lambda _notice: None}
    return LeaderContext(world=world, **{**nothing, **leads, **parts})
