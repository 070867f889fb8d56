"""The policy as text for viewers: every document without its comments, which may be confidential."""

import re
from typing import Final

import yaml

from webhook.policy.document import read_documents
from webhook.policy.source import Files

_Base: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # seven times faster where PyYAML has libyaml
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class _Dumper(_Base):  # type: ignore[misc,valid-type]
    """Quotes every text that is not a plain word: PyYAML writes YAML 1.1, which has fewer number formats than 1.2."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)
_Dumper.ignore_aliases = lambda *_: True  # what aliases repeat is written out


def published(files: Files) -> str:
    """Return the documents of a valid policy as one YAML text that loads as the same policy."""
    values = [document.value for document in read_documents(files).documents]
    text: str = yaml.dump_all(values, Dumper=_Dumper, sort_keys=False, width=2**16, allow_unicode=True)
    return text
