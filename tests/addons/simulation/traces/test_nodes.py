"""Nodes from tables."""

import pytest

from webhook.addons.simulation.traces.formats import NodeRow, TraceError, read_nodes


def read(*lines):
    return read_nodes([f"{line}\n" for line in lines], name="n.csv")


def test_openbs_nodes():
    assert read("sn,cpu_milli,memory_mib,gpu,model", "a,64000,1024,2,P100") == [NodeRow("a", 2, "P100", 64000, 1 << 30)]


def test_equal_nodes_in_one_row():
    found = read("name,gpus,model,cpu,memory,count", "h100,8,H100,96,1073741824,2", "cpu,0,,,,")
    assert found[:2] == [NodeRow(f"h100-0000{n}", 8, "H100", 96_000, 1 << 30) for n in range(2)]
    assert (found[2].name, found[2].gpus, found[2].cpu) == ("cpu", 0, 128_000)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(["a,b", "1,2"], "n.csv:1: not a table of nodes; expected the columns name, gpus", id="foreign"),
        pytest.param(["name,gpus"], "n.csv: has no node with GPUs", id="no nodes"),
        pytest.param(["name,gpus", "a,0"], "n.csv: has no node with GPUs", id="no GPUs"),
        pytest.param(["name,gpus", "a,x"], "n.csv:2: gpus: got 'x'; expected a number", id="a word"),
        pytest.param(["name,gpus", "a,1", "a,1"], "n.csv:3: a second node a", id="twice"),
        pytest.param(["name,gpus", ",1"], "n.csv:2: name: got nothing", id="no name"),
        pytest.param(["name,gpus,count", f"a,1,{10**18}"], "n.csv:2: count: got '1000", id="10^18 nodes"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines, want):
    with pytest.raises(TraceError) as caught:
        read(*lines)
    assert caught.value.problems[0].startswith(want)
