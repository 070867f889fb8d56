"""Values of untyped manifests are read as what they should be, or as nothing."""

from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.kube.workloads.model import listed, mapping, text

anything = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none()) | st.just({"a": 1})


@given(anything)
@examples()
def test_each_reads_its_own_type_and_nothing_else(value):
    read = {dict: mapping(value), str: text(value), list: listed(value)}
    for kind, found in read.items():
        assert found == (value if isinstance(value, kind) else kind())


def test_any_mapping_will_do():
    assert mapping(MappingProxyType({"a": 1})) == {"a": 1}
