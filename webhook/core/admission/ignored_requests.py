"""What a pod asks for, or says of itself, that is ignored: warnings on a pod that is admitted all the same."""

from webhook.core.admission.domain_rules import gang_warnings
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.pod import Pod
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World


def ignored_requests(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    """Return what is ignored of a pod's run time, gang and domain; `request` is the domain that it asks for."""
    if request is None and not (pod.domain_problem or pod.gang_problem or pod.run_time.problem):
        return ()
    found = gang_warnings(pod, request, world)
    if not pod.run_time.problem:
        return found
    return (*found, Reason(Code.RUN_TIME_IGNORED, "{problem}", {"problem": pod.run_time.problem}))
