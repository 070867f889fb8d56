"""The default namespace of an installation's shared objects."""

import asyncio
from pathlib import Path
from typing import Final

import yaml

from webhook.cluster.api.client import SERVICE_ACCOUNT
from webhook.cluster.api.errors import ClusterError

DEFAULT_NAMESPACE: Final = "default"
"""Also kubectl's default if a kubeconfig has none."""


async def own_namespace(kubeconfig: Path | None, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of a kubeconfig's current context, or without a kubeconfig that of this process's pod.

    Raises ClusterError for files that cannot be read.
    """
    return await asyncio.to_thread(_read, kubeconfig, service_account)


def _read(kubeconfig: Path | None, service_account: Path) -> str:
    try:
        if kubeconfig is None:
            return (service_account / "namespace").read_text().strip() or DEFAULT_NAMESPACE
        document = yaml.safe_load(kubeconfig.read_text())
        named = {entry["name"]: entry["context"] for entry in document["contexts"]}
        return str(named[document["current-context"]].get("namespace") or DEFAULT_NAMESPACE)
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError) as exc:
        source = f"kubeconfig {kubeconfig}" if kubeconfig else f"service account in {service_account}"
        raise ClusterError(f"cannot read a namespace from {source}, set --namespace: {exc}") from exc
