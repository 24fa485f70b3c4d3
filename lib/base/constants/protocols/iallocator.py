"""Modes and keys of the allocator protocol."""

from typing import Final

IALLOCATOR_VERSION: Final = 2
IALLOCATOR_MODE_ALLOC: Final = "allocate"
IALLOCATOR_MODE_ALLOCATE_SECONDARY: Final = "allocate-secondary"
IALLOCATOR_MODE_RELOC: Final = "relocate"
IALLOCATOR_MODE_MULTI_ALLOC: Final = "multi-allocate"
IALLOCATOR_MODE_NODE_EVAC: Final = "node-evacuate"
IALLOCATOR_MODE_CHG_GROUP: Final = "change-group"
VALID_IALLOCATOR_MODES: Final = (
    "allocate",
    "allocate-secondary",
    "change-group",
    "multi-allocate",
    "node-evacuate",
    "relocate",
)
IALLOCATOR_DIR_IN: Final = "in"
IALLOCATOR_DIR_OUT: Final = "out"
VALID_IALLOCATOR_DIRECTIONS: Final = ("in", "out")
IALLOC_HAIL: Final = "hail"
#: Means the cluster default.
DEFAULT_IALLOCATOR_SHORTCUT: Final = "."
ALLOCATABLE_KEY: Final = "allocatable"
FAILED_KEY: Final = "failed"
#: Seconds.
DEFAULT_OPPORTUNISTIC_RETRY_INTERVAL: Final = 30
#: Build_time.
IALLOCATOR_SEARCH_PATH: Final = (
    "/usr/local/lib/ganeti/iallocators",
    "/usr/lib/ganeti/iallocators",
)
