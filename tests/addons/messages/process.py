"""A process whose policy a test changes, with its notifier and its log."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.addons.messages.made import NOW, policy
from tests.addons.messages.receiver import Receiver, folder_of
from tests.cluster.support.pki import Authority
from webhook.addons.messages.notifier import Notifier
from webhook.core.model.policy_addons import NotifyKind, NotifyTarget
from webhook.observe.logs import LineWriter, LogFormat, Logs


class Process:
    """A process that sends messages; its Unix time begins at `now`."""

    def __init__(self, folder: Path, authority: Authority, *, now: float = NOW) -> None:
        self.now = now
        self.secrets = folder_of(folder / "secrets", authority)
        self.log = folder / "log"
        self.policy = policy()

    def target(self, receiver: Receiver, name: str = "t", **more: Any) -> NotifyTarget:
        """A target that is this receiver."""
        return NotifyTarget(name, **{"url": receiver.url, "ca_file": "ca.crt", "interval_seconds": 60, **more})

    def set_targets(self, *targets: NotifyTarget) -> None:
        """Edit the policy."""
        self.policy = policy(*targets, cluster="east")

    @asynccontextmanager
    async def running(
        self, *targets: NotifyTarget, kinds: frozenset[NotifyKind] = frozenset(NotifyKind)
    ) -> AsyncIterator[Notifier]:
        """Send until the end of the block."""
        self.set_targets(*targets)
        clock = asyncio.get_running_loop().time
        began = clock()
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        logs = Logs(LineWriter(fd), log_format=LogFormat.JSON)
        notifier = Notifier(
            lambda: self.policy,
            logs,
            kinds=kinds,
            secrets=self.secrets,
            clock=lambda: self.now + clock() - began,
        )
        task = asyncio.create_task(notifier.run())
        try:
            yield notifier
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            os.close(fd)
        assert task.cancelled()

    def logged(self) -> str:
        """Its log."""
        return self.log.read_text()
