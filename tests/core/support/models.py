"""A team with limits for two GPU models, and nodes of a model."""

from tests.core.support.make import gpus, node, team
from webhook.core.model.constraints import Constraints
from webhook.core.model.policy import Share

LABEL = "nvidia.com/gpu.product"
MODELS = {"H100": Share(limit=gpus(2)), "T4": Share(limit=gpus(8))}
TEAM = team(models=MODELS)


def of_model(name, model, **more):
    return node(name, model=model, model_label=LABEL, labels={LABEL: model}, **more)


def on(model):
    return Constraints(node_selector=((LABEL, model),))
