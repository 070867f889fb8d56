"""What `fairgate manifests --static` writes: a folder that kube-apiserver reads, and what still is applied."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.kube.registration.static_registration import (
    CONFIGURATION_FILE,
    admission_configuration,
    can_be_static,
    static_files,
)
from webhook.yaml_writer import to_yaml

PRINTED: Final = "-"
"""Given as the folder: print all files instead of writing them."""
OBJECTS_FILE: Final = "objects.yaml"
_FOR_OBJECTS: Final = (
    "# For `kubectl apply -f`, in the API of the cluster: definitions, roles, and what cannot come from a file.\n"
)
_FOR_CONFIGURATION: Final = (
    "# For kube-apiserver --admission-control-config-file (1.37), or add its plugins to the file that is there.\n"
    "# Each API server reads its own copy. What is here comes before all objects of the API, so the mutating webhook\n"
    "# runs first: a pod to which another webhook adds its first GPUs afterwards is refused, not admitted.\n"
)
_NOT_STATIC: Final = "# Not in these files, since none may hold a policy with parameters, but to be applied: {names}.\n"
_WITHOUT_CA: Final = "# There is no caBundle: the API server's host must trust the certificate. Nothing fills it in.\n"

_Json = dict[str, Any]


def rendered(definitions: Sequence[_Json], registered: Sequence[_Json], *, folder: str, has_ca: bool) -> dict[str, str]:
    """Return the content of each file by its path in the folder, which is where kube-apiserver will find it."""
    kept = [each for each in registered if not can_be_static(each)]
    names = ", ".join(each["metadata"]["name"] for each in kept if "paramKind" in each["spec"])
    head = _FOR_CONFIGURATION + (_NOT_STATIC.format(names=names) if names else "") + ("" if has_ca else _WITHOUT_CA)
    files = {CONFIGURATION_FILE: head + to_yaml(admission_configuration(folder))}
    files |= {path: to_yaml(*made) if made else "" for path, made in static_files(registered).items()}
    return {**files, OBJECTS_FILE: _FOR_OBJECTS + to_yaml(*definitions, *kept)}


def as_stream(files: Mapping[str, str]) -> str:
    """Return the files that kube-apiserver reads as one text, each after a line with its path."""
    read = {path: text for path, text in files.items() if text and path != OBJECTS_FILE}
    return "---\n".join(f"# {path}\n{text}" for path, text in read.items())


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files, each at once: kube-apiserver reads a folder whenever it changes. Raises OSError."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.new")  # without an extension that kube-apiserver reads
        partial.write_text(text)
        os.replace(partial, target)
