"""YAML for people and for kubectl, in which every text is read back as text by YAML 1.1 and 1.2."""

from typing import Final

import yaml

from webhook.core.model.text import escaped
from webhook.yaml_scalars import resolved

_Base: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # seven times faster where PyYAML has libyaml


class Dumper(_Base):  # type: ignore[misc,valid-type]
    """Quotes what kubectl would take for another value (`y`, `1e3`), and writes repeated parts in full."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if resolved(text) is text else "'"
    if not text.isprintable() and not text.replace("\n", "").isprintable():
        style = '"'  # where it can be escaped
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)
Dumper.ignore_aliases = lambda *_: True  # aliases are hard to read


def to_yaml(*documents: object, width: int = 2**16) -> str:
    """Return plain values as YAML documents, with keys in their order; what is not printable is escaped."""
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=width, allow_unicode=True)
    return escaped(text, escape=lambda odd: f"\\U{ord(odd):08x}")
