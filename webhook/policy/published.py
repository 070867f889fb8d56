"""The policy as text for those who may only view it: every document without its comments, which may not be for all."""

from typing import Final

import yaml

from webhook.policy.document import read_documents
from webhook.policy.source import Files

_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # seven times faster where PyYAML has libyaml


def published(files: Files) -> str:
    """Write the documents of a good policy as one YAML text that loads as the same policy.

    YAML 1.1's dumper quotes all that YAML 1.2 would read as something else than text, and more.
    """
    values = [document.value for document in read_documents(files).documents]
    text: str = yaml.dump_all(values, Dumper=_DUMPER, sort_keys=False, width=2**16, allow_unicode=True)
    return text
