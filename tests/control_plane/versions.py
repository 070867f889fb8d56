"""The recipes of `recipes.toml` as objects, by group and by name."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Program:
    """One binary and the Go package that it is built from."""

    binary: str
    package: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact replacement in the sources of a module."""

    path: str
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class Upstream:
    """A published module that is built in its own folder, with the files that are kept beside its binary."""

    module: str
    checksum: str  # as in go.sum, checked after the download
    keep: tuple[str, ...]
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How an operator is run; recipes.toml explains each field."""

    apply: list[str]
    flags: list[str]
    settings: dict[str, Any] | None = None
    webhooks: str = ""
    secret: str = ""
    unwanted: str = ""
    probe: dict[str, Any] | None = None
    then: str = ""
    replaces: str = ""
    serves: str = ""
    lease: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Binaries that are built together and cached in one folder; without `upstream` it is built in gomod/<name>."""

    name: str
    version: str
    programs: tuple[Program, ...]
    typical_minutes: float  # on two cores with cold caches
    ldflags: str = "-s -w"
    upstream: Upstream | None = None
    tags: str = ""
    run: Run | None = field(default=None, compare=False)


def _upstream(module: str, checksum: str, keep: list[str], edit: list[dict[str, str]]) -> Upstream:
    return Upstream(module, checksum, tuple(keep), tuple(Edit(**each) for each in edit))


def _recipe(name: str, data: dict[str, Any]) -> Recipe:
    checksum, keep, edit = data.pop("checksum", ""), data.pop("keep", []), data.pop("edit", [])
    return Recipe(
        name=name,
        version=data.pop("version"),
        programs=tuple(Program(*pair) for pair in data.pop("programs", {}).items()),
        typical_minutes=data.pop("minutes", 0),
        ldflags=" ".join(["-s -w", *(f"-X {variable}" for variable in data.pop("stamp", []))]),
        upstream=_upstream(data.pop("module"), checksum, keep, edit) if "module" in data else None,
        run=Run(**data.pop("run")) if "run" in data else None,
        **data,  # the tags; anything else is a mistake in the file
    )


_DATA = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text())
_GO = _DATA.pop("go")
_PATCHES: dict[str, str] = _DATA.pop("minors")
_GROUPS = {group: tuple(_recipe(*item) for item in recipes.items()) for group, recipes in _DATA.items()}
_BY_NAME = {recipe.name: recipe for recipes in _GROUPS.values() for recipe in recipes}

GO_MINIMUM: tuple[int, int, int] = tuple(_GO["minimum"])
GO_WHEEL: str = _GO["wheel"]


def minor_of(version: str) -> str:
    """The minor of a version: 1.37 of 1.37.0."""
    return version.rpartition(".")[0]


def _of_minor(minor: str, version: str) -> Recipe:
    """The recipe of another minor: that of the newest without kubectl, stamped with its own version."""
    stamped = KUBERNETES.ldflags.replace(f"gitVersion=v{KUBERNETES.version}", f"gitVersion=v{version}")
    newest = minor_of(KUBERNETES.version)
    return replace(
        KUBERNETES,
        name=f"{KUBERNETES.name}-{minor}",
        version=version,
        programs=tuple(program for program in KUBERNETES.programs if program.binary != "kubectl"),
        ldflags=stamped.replace(f"gitMinor={newest.partition('.')[2]}", f"gitMinor={minor.partition('.')[2]}"),
    )


def under_test(environ: Mapping[str, str] = os.environ) -> str:
    """The minor that the control plane has: $KUBERNETES, or the newest. Ends the process if there is no such recipe."""
    minor = environ.get("KUBERNETES") or NEWEST
    if minor not in MINORS:
        raise SystemExit(f"KUBERNETES={minor}: expected one of {', '.join(MINORS)}, the minors in recipes.toml")
    return minor


OPERATORS, TOOLS = (_GROUPS[group] for group in ("operators", "tools"))
ETCD, KWOK, KUBERNETES = _GROUPS["control-plane"]
NEWEST = minor_of(KUBERNETES.version)
MINORS = {minor: _of_minor(minor, version) for minor, version in _PATCHES.items()} | {NEWEST: KUBERNETES}
"""The minors of Kubernetes that tests run on, oldest first."""
OTHER_MINORS = tuple(recipe for recipe in MINORS.values() if recipe is not KUBERNETES)
MINOR = under_test()
CONTROL_PLANE = tuple(dict.fromkeys((ETCD, KWOK, KUBERNETES, MINORS[MINOR])))
"""What a control plane is made of; binaries of a later recipe take the place of those of an earlier one."""
TRAINING_OPERATOR, JOBSET, KUBERAY, MPI_OPERATOR, LWS, TRAINER, KARPENTER, KUEUE, VOLCANO, DESCHEDULER = OPERATORS
HELM, CERT_MANAGER, PROMETHEUS, ALERTMANAGER = TOOLS
(SCHEDULER_PERF,) = _GROUPS["harnesses"]
(CERT_MANAGER_MODULE,) = _GROUPS["modules"]

FOR_TEST = (*CONTROL_PLANE, TRAINING_OPERATOR)
"""What `make test` needs, in the order in which it is built."""
FOR_REST = (HELM,)
"""What `make test-rest` needs besides."""
FOR_TEST_OPERATORS = (CERT_MANAGER, *OPERATORS, PROMETHEUS, ALERTMANAGER)
"""What `make test-operators` needs besides the control plane."""

RECIPES = {
    **{name: recipe for name, recipe in _BY_NAME.items() if recipe.programs},
    **{recipe.name: recipe for recipe in MINORS.values()},
}
"""What can be built."""
EXAMPLES = tuple(recipe for recipe in OPERATORS if recipe not in {KARPENTER, VOLCANO, DESCHEDULER})
"""Modules whose example manifests are read."""
