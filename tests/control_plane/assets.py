"""Where each binary is: pure look-ups, no building and no downloading.

A binary of the control plane is taken from $KUBEBUILDER_ASSETS, else from the folder where controller-runtime's
setup-envtest puts the same version by itself, else from a cache folder whose name holds a hash of all that decides its
content.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from tests.control_plane.versions import KUBERNETES, OTHER_MINORS, Recipe

GOMOD = Path(__file__).with_name("gomod")


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of everything that is built for the tests, shared by all clones of one user."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME", Path.home())) / ".cache"
    return root / "fairgate" / "control-plane"


def target_platform() -> str:
    """The GOOS-GOARCH that Go would build for here."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }"


def recipe_key(recipe: Recipe, *, target: str, gomod: Path = GOMOD) -> str:
    """A short hash of the pins: another version, checksum, flag, target or dependency gives another folder."""
    pins = [recipe.programs, recipe.ldflags, recipe.upstream, target, *filter(None, [recipe.tags])]
    digest = hashlib.sha256("|".join(map(str, pins)).encode())
    if recipe.upstream is None:
        folder = gomod / recipe.name
        own = sorted(path for path in folder.rglob("*.go") if path.name != "tools.go")
        for path in (folder / "go.mod", folder / "go.sum", *own):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def recipe_folder(recipe: Recipe, *, root: Path | None = None) -> Path:
    """Where the binaries of a recipe are kept once they are built."""
    key = recipe_key(recipe, target=target_platform())
    return (root or cache_root()) / f"{recipe.name}-{recipe.version}-{key}"


def installed_asset(binary: str, version: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The binary as an executable file in $KUBEBUILDER_ASSETS, if that is set, or in setup-envtest's own folder."""
    given = environ.get("KUBEBUILDER_ASSETS", "")
    for folder in (*([Path(given)] if given else []), envtest_folder(version, environ)):
        if (candidate := folder / binary).is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def envtest_folder(version: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where `setup-envtest use VERSION` puts binaries on Linux: `store.DefaultStoreDir` of controller-runtime."""
    base = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME", Path.home())) / ".local" / "share"
    return Path(base) / "kubebuilder-envtest" / "k8s" / f"{version}-{target_platform()}"


def find_binary(
    recipe: Recipe, binary: str, *, root: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """The path of a binary of the recipe, or None when it is still to be built."""
    is_replaceable = recipe.upstream is None and recipe not in OTHER_MINORS
    if is_replaceable and (asset := installed_asset(binary, KUBERNETES.version, environ)):
        return asset
    cached = recipe_folder(recipe, root=root) / binary
    return cached if cached.is_file() else None


def missing_binaries(recipe: Recipe, *, root: Path | None = None) -> tuple[str, ...]:
    """The binaries of the recipe that are neither installed nor in the cache."""
    return tuple(
        program.binary for program in recipe.programs if find_binary(recipe, program.binary, root=root) is None
    )
