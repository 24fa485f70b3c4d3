"""Constants without another topic."""

from typing import Final

# When the master acknowledges changes, see ``ganeti.decisions.quorum``.
#: A majority of the master candidates has them; otherwise the master refuses changes.
COMMIT_POLICY_MAJORITY: Final = "majority"
#: The candidates that answer have them; clients are warned if they are no majority.
COMMIT_POLICY_AVAILABILITY: Final = "availability"
COMMIT_POLICIES: Final = (COMMIT_POLICY_MAJORITY, COMMIT_POLICY_AVAILABILITY)
#: Characters of a tag, and tags of an object.
MAX_TAG_LEN: Final = 128
MAX_TAGS_PER_OBJ: Final = 4096
#: Link of NICs of Ganeti, from its build.
DEFAULT_BRIDGE: Final = "xen-br0"
#: Link of NICs on virtual nodes without a bridge: a network inside the emulator.
USER_NETWORK: Final = "user-network"
# Limits of the user-id pool.
UIDPOOL_UID_MIN: Final = 0
UIDPOOL_UID_MAX: Final = 4294967295
UUID_REGEX: Final = "^[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}$"
#: Shown in place of private values.
REDACTED: Final = "<redacted>"
V_CLUSTER_VIRT_PATH_PREFIX: Final = "/###-VIRTUAL-PATH-###,"
#: Environment variable, legacy.
LUXI_OVERRIDE: Final = "FORCE_LUXI_SOCKET"
#: Files of the state directory with secrets that only master candidates have.
CANDIDATE_FILES: Final = (
    "cluster-domain-secret",
    "rapi.pem",
    "rapi/users",
    "server-key.pem",
    # A store in etcd, see `ganeti.store.choice`: the address last.
    "etcd-ca.pem",
    "etcd-client.pem",
    "store-engine",
)


#: Read/write, seconds.
LUXI_DEF_RWTO: Final = 180
#: Longest WaitForJobChange, seconds.
LUXI_WFJC_TIMEOUT: Final = 89
RPC_CONNECT_TIMEOUT: Final = 5
#: Most nodes in one question to another node about their signs of life. That many
#: silent nodes are a mass event.
MAX_ASKED_ABOUT: Final = 64
#: Longest time that a user may state: 100 years. Later times have no date on some
#: platforms.
LONGEST_S: Final = 100 * 366 * 86400
