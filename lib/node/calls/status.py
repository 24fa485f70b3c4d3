"""The report of a node for the state of the cluster, in one short call."""

import contextlib
import os
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.tls import x509
from ganeti.node.calls.instances import all_instances_info
from ganeti.node.calls.registry import LocalNode, procedure


@procedure("node_status")
def node_status(node: LocalNode, hypervisor_list: list[str]) -> dict[str, Any]:
    """Return the release, the guests, the memory and the certificates of this node.

    Storage is not looked at, so the call does not hang with it.

    Args:
        node: this node.
        hypervisor_list: hypervisors whose guests are wanted; the first one reports the
            memory.

    Returns:
        ``release``; ``guests`` as from ``all_instances_info``; ``host`` as from
        ``node_info``; ``certificates``: file name -> seconds that it is still valid.

    Raises:
        HypervisorError: a hypervisor cannot list its guests.
    """
    host = node.hypervisor(hypervisor_list[0]).node_info() if hypervisor_list else {}
    return {
        "release": versions.RELEASE_VERSION,
        "guests": all_instances_info(node, hypervisor_list, {}),
        "host": host,
        "certificates": _certificates(node),
    }


def _certificates(node: LocalNode) -> dict[str, float]:
    """Return how long certificates are valid; verification reports unreadable ones."""
    left = {}
    for path in (node.paths.server_pem, node.paths.client_pem):
        with contextlib.suppress(errors.X509CertError):
            certificate = x509.load_certificate(path)
            left[os.path.basename(path)] = x509.seconds_left(certificate)
    return left
