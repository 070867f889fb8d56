"""The policy as text for viewers: every document without its comments, which may be confidential."""

from webhook.policy.document import read_documents
from webhook.policy.source import Files
from webhook.yaml_writer import to_yaml


def published(files: Files) -> str:
    """Return the documents of a valid policy as one YAML text that loads as the same policy."""
    return to_yaml(*(document.value for document in read_documents(files).documents))
