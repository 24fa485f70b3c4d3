"""Hook phases, kinds and result codes."""

from typing import Final

HOOKS_VERSION: Final = 2
HOOKS_PHASE_PRE: Final = "pre"
HOOKS_PHASE_POST: Final = "post"
HOOKS_NAME_CFGUPDATE: Final = "config-update"
HOOKS_NAME_WATCHER: Final = "watcher"
#: PATH of hook scripts.
HOOKS_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
HTYPE_CLUSTER: Final = "CLUSTER"
HTYPE_NODE: Final = "NODE"
HTYPE_GROUP: Final = "GROUP"
HTYPE_NETWORK: Final = "NETWORK"
HKR_SKIP: Final = 0
HKR_FAIL: Final = 1
HKR_SUCCESS: Final = 2
FAKE_OP_MASTER_TURNUP: Final = "OP_CLUSTER_IP_TURNUP"
FAKE_OP_MASTER_TURNDOWN: Final = "OP_CLUSTER_IP_TURNDOWN"
#: File names accepted as plugins.
EXT_PLUGIN_MASK: Final = "^[a-zA-Z0-9_-]+$"
