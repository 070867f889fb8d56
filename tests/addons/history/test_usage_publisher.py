"""The leader publishes what teams used in the last days, and nothing where no history is recorded."""

import pytest

from tests.addons.history.support import A100, T0, row
from tests.core.support.make import world
from webhook.addons.history.meter import INTERVAL_SECONDS
from webhook.addons.history.recorder import UsageRecorder
from webhook.addons.history.server import UsagePublisher
from webhook.addons.history.store import Batch, HistoryStore
from webhook.cluster.writes.reports import read_report
from webhook.kube.ledger import reports
from webhook.observe.logs import LogFormat, open_logs

DAY, HOUR = 86_400, 3600
ROWS = [
    row("observed", INTERVAL_SECONDS),
    row("guaranteed", 12 * HOUR, team="vision", user="ada", model=A100),
    row("preemptible", 6 * HOUR, team="vision", user="bob", model=A100, start=T0 + 3 * DAY),
    row("refused", 3, team="nlp", user="bob", start=T0 + 3 * DAY),
]


@pytest.fixture
def recorder(tmp_path):
    store = HistoryStore(tmp_path / "history.db")
    store.write(Batch(ROWS, T0))
    store.close()
    with (tmp_path / "log").open("wb") as log:
        yield lambda path: UsageRecorder(world(), open_logs(LogFormat.JSON, fd=log.fileno()), path=path)


async def test_the_sums_of_teams_are_published_and_no_user(connection, recorder, tmp_path):
    await UsagePublisher(connection, recorder(tmp_path / "history.db")).publish(T0 + 4 * DAY)
    usage = (await read_report(connection, reports.USAGE)).usage
    assert {days: sorted(team.name for team in each.teams) for days, each in usage.days.items()} == {
        "1": ["nlp", "vision"],
        "7": ["nlp", "vision"],
        "30": ["nlp", "vision"],
    }
    teams = {team.name: team for team in usage.days["7"].teams}
    assert (teams["vision"].guaranteed, teams["vision"].preemptible, teams["vision"].idle) == (12, 6, None)
    assert (teams["nlp"].refused, usage.days["7"].observed_hours) == (3, 0.08)
    assert usage.days["1"].until - usage.days["1"].since == DAY
    assert not [name for name in ("ada", "bob") if name in str(usage)]


async def test_without_a_history_nothing_is_published(api, connection, recorder):
    await UsagePublisher(connection, recorder(None)).publish(T0)
    assert api.count("patch") == 0
