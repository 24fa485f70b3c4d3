"""The class of the client, from the methods of all objects."""

from ganeti.rapi.client.cluster import ClusterMethods
from ganeti.rapi.client.groups import GroupMethods
from ganeti.rapi.client.instance_changes import InstanceChangeMethods
from ganeti.rapi.client.instance_power import InstancePowerMethods
from ganeti.rapi.client.instances import InstanceMethods
from ganeti.rapi.client.jobs import JobMethods
from ganeti.rapi.client.networks import NetworkMethods
from ganeti.rapi.client.nodes import NodeMethods


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
