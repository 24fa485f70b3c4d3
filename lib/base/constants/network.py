"""Network sizes, NIC modes and defaults."""

from typing import Final

IPV4_NETWORK_MIN_SIZE: Final = 30
IPV4_NETWORK_MAX_SIZE: Final = 30
RESERVE_ACTION: Final = "reserve"
RELEASE_ACTION: Final = "release"
NIC_MODE_BRIDGED: Final = "bridged"
NIC_MODE_ROUTED: Final = "routed"
NIC_MODE_OVS: Final = "openvswitch"
#: Pseudo value for IP from the pool.
NIC_IP_POOL: Final = "pool"
NIC_VALID_MODES: Final = ("bridged", "openvswitch", "pool", "routed")
DEFAULT_MAC_PREFIX: Final = "aa:00:00"
DEFAULT_OVS: Final = "switch1"
IP4_VERSION: Final = 4
IP6_VERSION: Final = 6
VALID_IP_VERSIONS: Final = (4, 6)
#: Build_time.
DEFAULT_BRIDGE: Final = "xen-br0"
#: Link of NICs on virtual nodes without a bridge: a network inside the emulator.
USER_NETWORK: Final = "user-network"
