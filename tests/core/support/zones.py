"""Nodes in zones, and random labels and selectors: for tests of topology rules."""

from hypothesis import strategies as st

from tests.core.support.make import node, requirement
from webhook.core.model.policy import LabelSelector

APP = {"app": "web"}
OF_APP = LabelSelector((requirement("app", "In", "web"),))

LABELS = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(["web", "db"]), "tier": st.sampled_from(["x", "y"])}
)
SELECTORS = st.one_of(
    st.none(),
    st.just(LabelSelector(())),
    st.builds(
        lambda key, operator, value: LabelSelector((requirement(key, operator, value),)),
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["In", "NotIn", "Exists"]),
        st.sampled_from(["web", "x"]),
    ),
)


def zoned(*zones, per_zone=2, **more):
    """A number of nodes in each zone: a0, a1, b0, …"""
    return [
        node(f"{zone}{i}", labels={"zone": zone, "host": f"{zone}{i}"}, **more)
        for zone in zones
        for i in range(per_zone)
    ]
