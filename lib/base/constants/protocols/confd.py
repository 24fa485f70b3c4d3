"""Requests, answers and limits of the confd UDP protocol."""

from typing import Final

#: Signed before the answer of a monitoring agent to a challenge. Messages of confd begin
#: with their salt, a number or a uuid.
PURPOSE_REPORT: Final = b"ganeti-mond:report:"
#: Prefix of every datagram.
CONFD_MAGIC_FOURCC: Final = "plj0"
CONFD_PROTOCOL_VERSION: Final = 1
#: Answer: config version.
CONFD_REQ_PING: Final = 0
#: Query: node name; answer: role number.
CONFD_REQ_NODE_ROLE_BYNAME: Final = 1
#: Query: dict with ip or ip list and optional link.
CONFD_REQ_NODE_PIP_BY_INSTANCE_IP: Final = 2
CONFD_REQ_CLUSTER_MASTER: Final = 3
#: Answer: primary IPs of all nodes.
CONFD_REQ_NODE_PIP_LIST: Final = 4
#: Answer: primary IPs of master candidates.
CONFD_REQ_MC_PIP_LIST: Final = 5
#: Query: link name or null; answer: IPs.
CONFD_REQ_INSTANCES_IPS_LIST: Final = 6
CONFD_REQ_NODE_DRBD: Final = 7
CONFD_REQ_NODE_INSTANCES: Final = 8
#: Query: instance name; answer: disk objects.
CONFD_REQ_INSTANCE_DISKS: Final = 9
#: Query: JSON pointer into the configuration, starts with /.
CONFD_REQ_CONFIG_QUERY: Final = 10
#: Answer: collector name to {active, interval}.
CONFD_REQ_DATA_COLLECTORS: Final = 11
#: Dict query keys are these strings.
CONFD_REQQ_LINK: Final = "0"
CONFD_REQQ_IP: Final = "1"
CONFD_REQQ_IPLIST: Final = "2"
CONFD_REQQ_FIELDS: Final = "3"
#: Master name.
CONFD_REQFIELD_NAME: Final = 0
#: Master IP.
CONFD_REQFIELD_IP: Final = 1
#: Primary IP of the master node.
CONFD_REQFIELD_MNODE_PIP: Final = 2
CONFD_REPL_STATUS_OK: Final = 0
CONFD_REPL_STATUS_ERROR: Final = 1
CONFD_NODE_ROLE_MASTER: Final = 0
CONFD_NODE_ROLE_CANDIDATE: Final = 1
CONFD_NODE_ROLE_OFFLINE: Final = 2
CONFD_NODE_ROLE_DRAINED: Final = 3
CONFD_NODE_ROLE_REGULAR: Final = 4
CONFD_ERROR_UNKNOWN_ENTRY: Final = 0
CONFD_ERROR_INTERNAL: Final = 1
CONFD_ERROR_ARGUMENT: Final = 2
#: Seconds.
CONFD_MAX_CLOCK_SKEW: Final = 300
MAX_UDP_DATA_SIZE: Final = 61440
#: Setting of the cluster: signatures that are accepted. Clients of Ganeti have SHA-1 only.
CONFD_HMAC_SHA1: Final = "sha1"
CONFD_HMACS: Final = (CONFD_HMAC_SHA1, "both", "sha256")
