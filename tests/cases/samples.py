"""Objects of every kind that makes pods: those of `expansions/*.yaml`, whose format test_expansions.py describes."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Json = dict[str, Any]
FOLDER = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # every worker reads all of them to list the tests


def read_yaml(path: Path) -> Any:
    """Read a file of cases."""
    return yaml.load(path.read_bytes(), Loader=_LOADER)


class Sample(NamedTuple):
    """An object, what else is known, and what it expands to, with a name for messages."""

    name: str
    of: Json
    related: list[Json]
    case: Json

    @property
    def kind(self) -> str:
        """The kind of the object, with its group."""
        return f"{self.of['apiVersion'].rpartition('/')[0]}/{self.of['kind']}"


def samples() -> list[Sample]:
    """Read all samples; no two of them share a part."""
    return [
        Sample(
            f"{path.stem}: {name}",
            {"metadata": {"name": "it", "namespace": "vision"}, **_copied(case["of"])},
            _copied(case.get("with", [])),
            case,
        )
        for path in sorted((FOLDER / "expansions").glob("*.yaml"))
        for name, case in read_yaml(path).items()
    ]


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(filled(value)))


def filled(value: Any) -> Any:
    """Write out what `pod: N` stands for."""
    if isinstance(value, dict):
        if value.keys() == {"pod"}:
            return {
                "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": value["pod"]}}}]}
            }
        return {key: filled(item) for key, item in value.items()}
    return [filled(item) for item in value] if isinstance(value, list) else value
