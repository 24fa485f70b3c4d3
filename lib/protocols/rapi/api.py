"""The class of the client, from the methods of all objects."""

from ganeti.protocols.rapi.cluster import ClusterMethods
from ganeti.protocols.rapi.groups import GroupMethods
from ganeti.protocols.rapi.instance_changes import InstanceChangeMethods
from ganeti.protocols.rapi.instance_power import InstancePowerMethods
from ganeti.protocols.rapi.instances import InstanceMethods
from ganeti.protocols.rapi.jobs import JobMethods
from ganeti.protocols.rapi.networks import NetworkMethods
from ganeti.protocols.rapi.nodes import NodeMethods


class GanetiRapiClient(
    ClusterMethods,
    InstanceMethods,
    InstancePowerMethods,
    InstanceChangeMethods,
    NodeMethods,
    GroupMethods,
    NetworkMethods,
    JobMethods,
):
    """A client of the remote API of one cluster.

    Methods that change something return the number of a job, which may not have ended.
    ``dry_run`` only checks; ``reason`` is a text for the reason trail of the job. All
    methods raise `GanetiApiError` if the server refuses a request.
    """
