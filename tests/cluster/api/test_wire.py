from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.api.client import LineSplitter

texts = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=8)


@given(texts, st.binary(max_size=5).filter(lambda rest: b"\n" not in rest), st.data())
def test_lines_do_not_depend_on_how_the_stream_is_split(lines, rest, data):
    stream = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(data.draw(st.lists(st.integers(min_value=0, max_value=len(stream)), max_size=10)))
    splitter = LineSplitter()
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got.extend(splitter.feed(stream[start:end]))
    assert got == [line for line in lines if line]
