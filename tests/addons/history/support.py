"""Rows and clocks for tests of the history."""

from webhook.addons.history.meter import UsageKey, UsageKind, UsageRow

T0 = 1_700_000_100  # the start of an interval
A100 = "A100"


class Clock:
    """A clock that tests move; it was never set."""

    def __init__(self, seconds=float(T0)):
        self.seconds = seconds
        self.was_set = False

    def __call__(self):
        return self.seconds

    def has_been_set(self):
        was_set, self.was_set = self.was_set, False
        return was_set


def row(kind, amount, *, team="", user="", model="", start=T0, department=""):
    return UsageRow(start, UsageKey(UsageKind(kind), team, user, model), amount, department)


def amounts(rows, *, start=None):
    """The amounts of rows by kind, team, user and model."""
    return {tuple(each.key): each.amount for each in rows if start in (None, each.start)}
