"""Disk templates, their families and disk limits; fields of storage units."""

from typing import Final

DISK_TEMPLATES: Final = (
    "blockdev",
    "diskless",
    "drbd",
    "ext",
    "file",
    "gluster",
    "plain",
    "rbd",
    "sharedfile",
)
#: Templates whose disks this release can create on nodes.
OFFERED_DISK_TEMPLATES: Final = DISK_TEMPLATES
DEFAULT_ENABLED_DISK_TEMPLATES: Final = ("drbd", "plain")
#: Template of instances without disks.
DT_DISKLESS: Final = "diskless"
#: Have a secondary node.
DTS_INT_MIRROR: Final = ("drbd",)
#: Shared storage.
DTS_EXT_MIRROR: Final = ("blockdev", "diskless", "ext", "gluster", "rbd", "sharedfile")
DTS_MIRRORED: Final = (
    "blockdev",
    "diskless",
    "drbd",
    "ext",
    "gluster",
    "rbd",
    "sharedfile",
)
DTS_LVM: Final = ("drbd", "plain")
DTS_DRBD: Final = ("drbd",)
#: Their directories are the same ones on all nodes.
DTS_SHARED_DIRS: Final = ("sharedfile", "gluster")
DTS_FILEBASED: Final = ("file", "gluster", "sharedfile")
DTS_GROWABLE: Final = ("drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile")
DTS_MUST_ADOPT: Final = ("blockdev",)
#: Have the access parameter.
DTS_HAVE_ACCESS: Final = ("ext", "gluster", "rbd")
DTS_SNAPSHOT_CAPABLE: Final = ("drbd", "ext", "plain")
DTS_INSTANCE_DEPENDENT_PATH: Final = ("file", "sharedfile")
MAP_DISK_TEMPLATE_STORAGE_TYPE: Final = {
    "blockdev": "blockdev",
    "diskless": "diskless",
    "drbd": "lvm-vg",
    "ext": "ext",
    "file": "file",
    "gluster": "gluster",
    "plain": "lvm-vg",
    "rbd": "rados",
    "sharedfile": "sharedfile",
}
FILE_DRIVER: Final = ("blktap", "blktap2", "loop")
DISK_VALID_ACCESS_MODES: Final = ("kernelspace", "userspace")
MAX_DISKS: Final = 16
MAX_NICS: Final = 8
LAST_DRBD_PORT: Final = 14999
#: MiB per disk.
DRBD_META_SIZE: Final = 128
#: MiB.
MIN_VG_SIZE: Final = 20480
#: Local disk status; larger is worse.
LDS_OK, LDS_SYNCING, LDS_UNKNOWN, LDS_FAULTY = 1, 2, 3, 4
LDS_NAMES: Final = {
    LDS_OK: "ok",
    LDS_SYNCING: "syncing",
    LDS_UNKNOWN: "unknown",
    LDS_FAULTY: "faulty",
}
#: Sets a parameter back to its default.
VALUE_DEFAULT: Final = "default"
ADOPTABLE_BLOCKDEV_ROOT: Final = "/dev/disk/"
#: Build_time.
DEFAULT_VG: Final = "xenvg"
#: Dynamic parameter of a mirror on a node: its peer cannot be asked, so that an
#: activation does not wait for the comparison of both copies; not in Ganeti.
PEER_IS_AWAY: Final = "peer-is-away"


VALID_STORAGE_FIELDS: Final = (
    "allocatable",
    "free",
    "name",
    "node",
    "size",
    "type",
    "used",
)
SF_NAME: Final = "name"
SF_SIZE: Final = "size"
SF_FREE: Final = "free"
SF_USED: Final = "used"
SF_ALLOCATABLE: Final = "allocatable"
VALID_STORAGE_OPERATIONS: Final = {"lvm-vg": ["fix-consistency"]}
