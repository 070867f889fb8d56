"""Labels as one string."""

from hypothesis import given

from tests.core.support.zones import LABELS
from webhook.core.model.constraints import pack, unpack


@given(LABELS)
def test_labels_are_kept_as_they_are(labels):
    assert unpack(pack(labels)) == labels
