"""A user with the ClusterRole `edit` in a namespace, at a shell."""

import json
import shlex

from click.testing import CliRunner

from tests.control_plane.build import binary_path
from tests.control_plane.kubectl import Kubectl
from tests.control_plane.versions import KUBERNETES
from tests.control_plane.workbench import wait_for
from webhook.cli.main import main


class Person:
    """A user with the ClusterRole `edit` in a namespace."""

    def __init__(self, cluster, name, namespace):
        cluster.kubectl("create", "rolebinding", name, "--clusterrole=edit", f"--user={name}", "-n", namespace)
        self._cluster, self.name = cluster, name
        self.kubeconfig = cluster.user_kubeconfig(name, namespace=namespace)

    def becomes_viewer(self):
        role = "--clusterrole=fairgate-viewer"
        self._cluster.kubectl("create", "clusterrolebinding", self.name, role, f"--user={self.name}")
        access = ("auth", "can-i", "get", "reports.fairgate.dev", f"--as={self.name}")
        wait_for(self._cluster, lambda: self._cluster.kubectl(*access, check=False).strip() == "yes", what="a viewer")

    def fairgate(self, *words, stdin=None):
        options = [] if "--world" in words else ["--kubeconfig", str(self.kubeconfig)]
        return CliRunner().invoke(main, [*map(str, words), *options], input=stdin, catch_exceptions=False)

    def teams(self, *words):
        notes = json.loads(self.fairgate("status", "-o", "json", *words).stdout)
        return {team["name"]: team for team in notes["teams"]}, notes


def said(command, kubeconfig, folder):
    """What a command prints, `kubectl fairgate …` or `kubectl …`, with this kubeconfig; files are in the folder."""
    words = [str(folder / word) if word.endswith(".yaml") else word for word in shlex.split(command)][1:]
    if words[0] == "fairgate":
        return CliRunner().invoke(main, [*words[1:], "--kubeconfig", str(kubeconfig)], catch_exceptions=False).output
    kubectl = Kubectl(binary_path(KUBERNETES, "kubectl"), kubeconfig=kubeconfig, environment={"HOME": str(folder)})
    done = kubectl.run(*words)
    return done.stdout + done.stderr
