"""How a person reads usage from a server: a token of one ServiceAccount, for one audience, checked by the API server.

The API server passes no identity on when it forwards a request to a pod, and a user's own token must not be sent to
Fairgate: it would be good for everything that the user may do. A token for this audience is good for this alone.
"""

from typing import Final

USAGE_PATH: Final = "/usage"
AUDIENCE: Final = "usage.fairgate.dev"
TOKEN_HEADER: Final = "X-Fairgate-Token"  # noqa: S105 - a name; kube-apiserver itself reads Authorization
READER: Final = "fairgate-usage-reader"
"""The ServiceAccount whose tokens readers request; the chart creates it, with the right to list pods."""
TOKEN_SECONDS: Final = 600
"""The shortest lifetime that the API server grants."""
