"""What a pod asks for, or says of itself, that is ignored: warnings on a pod that is admitted all the same."""

from webhook.core.admission.domain_rules import gang_warnings
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.pod import Pod
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World


def ignored_requests(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    """Return what is ignored of what a pod says of itself; `request` is the domain that it asks for."""
    own = ((Code.RUN_TIME_IGNORED, pod.run_time.problem), (Code.MINIMUM_IGNORED, pod.replica.problem))
    if request is None and not (pod.domain_problem or pod.gang_problem or own[0][1] or own[1][1]):
        return ()
    found = gang_warnings(pod, request, world)
    return (*found, *(Reason(code, "{problem}", {"problem": problem}) for code, problem in own if problem))
