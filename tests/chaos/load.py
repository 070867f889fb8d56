"""Clients that create and delete pods as fast as the API server allows, and count the responses."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from tests.chaos.bystander import REFUSED_LABEL
from tests.chaos.client import ask, session
from tests.chaos.replicas import Team
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod

SIZES = (1, 1, 1, 2, 3)
GANG = "kueue.x-k8s.io/pod-group-name"
GANG_SIZE = "kueue.x-k8s.io/pod-group-total-count"


@dataclass(slots=True)
class Responses:
    """What clients received: counts by outcome, and the messages that no user should ever see."""

    counts: Counter[str] = field(default_factory=Counter)
    lost_races: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def take(self, what: str, status: int, answer: dict) -> bool:
        """Count a response and return whether it was a success."""
        message = str(answer.get("message", ""))
        match status:
            case 200 | 201:
                self.counts[what] += 1
                return True
            case 403 if "exceeded quota" in message:
                self.counts["over the limit"] += 1
                self.counts["over the limit of a department"] += "department " in message
            case 403 if "bystander" in message:
                self.counts["refused by the bystander"] += 1
            case 404 | 409:
                self.counts["not there, or there already"] += 1
            case 429:
                self.lost_races.append(message)
            case _:
                self.failures.append(f"{what}: {status} {message}")
        return False


@dataclass(slots=True)
class Load:
    """A number of clients over some teams; each pauses for up to `pause_seconds` between two requests.

    A part of the creations, `gangs`, are gangs of two to four pods. `alive` has the names of the pods by namespace,
    those of a gang joined by commas: they are deleted together.
    `timed` has when each creation began, and the seconds until its response;
    `warmed_up` is set after as many creations as a third of the clients.
    """

    cluster: ControlPlane
    teams: list[Team]
    clients: int = 50
    seed: int = 0
    pause_seconds: float = 0.0
    sizes: tuple[int, ...] = SIZES
    gangs: float = 0.0
    timed: list[tuple[float, float]] = field(default_factory=list)
    responses: Responses = field(default_factory=Responses)
    alive: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    warmed_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, seconds: float | None = None) -> Responses:
        """Send requests for a while or until `stopping` is set, then return the responses."""
        async with session(self.cluster, connections=self.clients) as api, asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self._client(api, random.Random(f"{self.seed}/{number}")))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), seconds)
            self.stopping.set()
        return self.responses

    async def _client(self, api: aiohttp.ClientSession, dice: random.Random) -> None:
        while not self.stopping.is_set():
            try:
                await self._act(api, dice)
            except (aiohttp.ClientError, TimeoutError) as error:
                self.responses.counts[f"no answer: {type(error).__name__}"] += 1
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.pause_seconds * dice.random())

    async def _act(self, api: aiohttp.ClientSession, dice: random.Random) -> None:
        team = dice.choice(self.teams)
        pods = f"/api/v1/namespaces/{team.namespace}/pods"
        alive = self.alive[team.namespace]
        wish = dice.random()
        if wish < 0.3 and alive:
            for name in alive.pop(dice.randrange(len(alive))).split(","):
                self.responses.take("deleted", *await ask(api, "DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0}))
            return
        if dice.random() < self.gangs:
            await self._create_gang(api, team, pods, dice)
            return
        name = self._name(dice)
        labels = {REFUSED_LABEL: ""} if wish > 0.98 else {}
        body = pod(name, labels=labels, gpus=dice.choice(self.sizes), terminationGracePeriodSeconds=0)
        if wish > 0.8 and not labels:
            self.responses.take("dry run", *await ask(api, "POST", pods, body, dryRun="All"))
        elif wish > 0.7 and not labels:
            body["metadata"] |= {"generateName": "made-"}
            del body["metadata"]["name"]
            await self._create(api, team, pods, body)
        else:
            await self._create(api, team, pods, body)

    async def _create_gang(self, api: aiohttp.ClientSession, team: Team, pods: str, dice: random.Random) -> None:
        name, size = f"gang-{secrets.token_hex(5)}", dice.randint(2, 4)
        marks = {"labels": {GANG: name}, "annotations": {GANG_SIZE: str(size)}}
        made = []
        for number in range(size):
            body = pod(f"{name}-{number}", gpus=dice.choice(self.sizes), terminationGracePeriodSeconds=0, **marks)
            made += await self._try(api, pods, body)
        if made:
            self.alive[team.namespace].append(",".join(made))

    async def _create(self, api: aiohttp.ClientSession, team: Team, pods: str, body: dict) -> None:
        self.alive[team.namespace] += await self._try(api, pods, body)

    async def _try(self, api: aiohttp.ClientSession, pods: str, body: dict) -> list[str]:
        """Create a pod; return its name, or nothing."""
        began = time.monotonic()
        status, answer = await ask(api, "POST", pods, body)
        self.timed.append((began, time.monotonic() - began))
        if len(self.timed) == self.clients // 3:
            self.warmed_up.set()
        return [answer["metadata"]["name"]] if self.responses.take("created", status, answer) else []

    def _name(self, dice: random.Random) -> str:
        """Mostly a new name, sometimes an existing one: then the creation fails after Fairgate allowed it."""
        return f"twin-{dice.randrange(20)}" if dice.random() < 0.01 else f"pod-{secrets.token_hex(5)}"
