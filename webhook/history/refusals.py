"""From a refused request to its row: who asked, by the same rules as for a pod that is charged, and for how much."""

from webhook.core.admission.assessment import charged_user
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.reason import Reason
from webhook.core.world.world import World
from webhook.history.trace_row import PodRow
from webhook.history.usage_row import bounded
from webhook.kube.admission.review import Review


def refusal_row(review: Review, pod: Pod | None, reason: Reason, world: World) -> PodRow:
    """Return the row of a refused request; `pod` is None where it could not be read: then it asks for no GPU."""
    team = world.tenancy(review.namespace).team_name
    generated = "" if review.pod is None else review.pod.metadata.generate_name
    row = PodRow("", bounded(review.namespace), bounded(review.name or generated), team=bounded(team), code=reason.code)
    if pod is None:
        return row._replace(user=bounded(review.username))
    return row._replace(
        owner="" if pod.owner is None else bounded(f"{pod.owner.kind}/{pod.owner.name}"),
        user=bounded(charged_user(pod, Requester(review.username), world) or ""),
        gpus=float(pod.demand.gpus / ONE_GPU),
    )
