"""Storage unit types and fields."""

from typing import Final

STORAGE_TYPES: Final = (
    "blockdev",
    "diskless",
    "ext",
    "file",
    "gluster",
    "lvm-pv",
    "lvm-vg",
    "rados",
    "sharedfile",
)
#: With space reporting.
STS_REPORT: Final = ("file", "lvm-pv", "lvm-vg")
STS_REPORT_NODE_STORAGE: Final = ("file", "gluster", "lvm-pv", "lvm-vg", "sharedfile")
VALID_STORAGE_FIELDS: Final = (
    "allocatable",
    "free",
    "name",
    "node",
    "size",
    "type",
    "used",
)
SF_NODE: Final = "node"
SF_TYPE: Final = "type"
SF_NAME: Final = "name"
SF_SIZE: Final = "size"
SF_FREE: Final = "free"
SF_USED: Final = "used"
SF_ALLOCATABLE: Final = "allocatable"
VALID_STORAGE_OPERATIONS: Final = {"lvm-vg": ["fix-consistency"]}
SO_FIX_CONSISTENCY: Final = "fix-consistency"
MODIFIABLE_STORAGE_FIELDS: Final = {"lvm-pv": ["allocatable"]}
VF_NODE: Final = "node"
VF_PHYS: Final = "phys"
VF_VG: Final = "vg"
VF_NAME: Final = "name"
VF_SIZE: Final = "size"
VF_INSTANCE: Final = "instance"
