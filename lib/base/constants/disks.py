"""Disk templates, their families and disk limits."""

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
OFFERED_DISK_TEMPLATES: Final = (
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
DISK_TEMPLATE_PREFERENCE: Final = (
    "blockdev",
    "diskless",
    "drbd",
    "ext",
    "file",
    "plain",
    "rbd",
    "sharedfile",
    "gluster",
)
DEFAULT_ENABLED_DISK_TEMPLATES: Final = ("drbd", "plain")
#: Template of instances without disks.
DT_DISKLESS: Final = "diskless"
#: Pseudo template reported for instances with differing disks.
DT_MIXED: Final = "mixed"
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
DTS_NOT_LVM: Final = (
    "blockdev",
    "diskless",
    "ext",
    "file",
    "gluster",
    "rbd",
    "sharedfile",
)
DTS_DRBD: Final = ("drbd",)
DTS_BLOCK: Final = ("blockdev", "drbd", "ext", "plain", "rbd")
#: Their directories are the same ones on all nodes.
DTS_SHARED_DIRS: Final = ("sharedfile", "gluster")
DTS_FILEBASED: Final = ("file", "gluster", "sharedfile")
DTS_GROWABLE: Final = ("drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile")
DTS_MAY_ADOPT: Final = ("blockdev", "plain")
DTS_MUST_ADOPT: Final = ("blockdev",)
DTS_EXCL_STORAGE: Final = ("plain",)
DTS_COPYABLE: Final = ("file", "plain")
#: Have the access parameter.
DTS_HAVE_ACCESS: Final = ("ext", "gluster", "rbd")
#: Disks can be read and written while they are attached only; not in Ganeti.
DTS_ATTACHED: Final = ("ext", "rbd")
DTS_NO_FREE_SPACE_CHECK: Final = ("ext", "file", "gluster", "rbd", "sharedfile")
DTS_NOT_CONVERTIBLE_FROM: Final = ("diskless",)
DTS_NOT_CONVERTIBLE_TO: Final = ("blockdev", "diskless")
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
FD_DEFAULT: Final = "loop"
DISK_ACCESS_SET: Final = ("ro", "rw")
DISK_VALID_ACCESS_MODES: Final = ("kernelspace", "userspace")
MAX_DISKS: Final = 16
MAX_NICS: Final = 8
FIRST_DRBD_PORT: Final = 11000
LAST_DRBD_PORT: Final = 14999
DRBD_SECRET_LENGTH: Final = 20
#: MiB per disk.
DRBD_META_SIZE: Final = 128
DRBD_HMAC_ALG: Final = "md5"
DRBD_VALID_BARRIER_OPT: Final = (
    ("b", "d", "f"),
    ("b", "d"),
    ("b", "f"),
    ("b",),
    ("d", "f"),
    ("d",),
    ("f",),
    ("n",),
)
DRBD_DEFAULT_NET_PROTOCOL: Final = "C"
DEFAULT_DRBD_HELPER: Final = "/bin/true"
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
DDMS_VALUES: Final = ("add", "attach", "detach", "remove")
DDMS_VALUES_WITH_MODIFY: Final = ("add", "attach", "detach", "modify", "remove")
REPLACE_DISK_PRI: Final = "replace_on_primary"
REPLACE_DISK_SEC: Final = "replace_on_secondary"
REPLACE_DISK_CHG: Final = "replace_new_secondary"
REPLACE_DISK_AUTO: Final = "replace_auto"
REPLACE_MODES: Final = (
    "replace_auto",
    "replace_new_secondary",
    "replace_on_primary",
    "replace_on_secondary",
)
#: Sets a parameter back to its default.
VALUE_DEFAULT: Final = "default"
VALUE_AUTO: Final = "auto"
VALUE_GENERATE: Final = "generate"
VALUE_NONE: Final = "none"
VALUE_TRUE: Final = "true"
VALUE_FALSE: Final = "false"
ADOPTABLE_BLOCKDEV_ROOT: Final = "/dev/disk/"
#: MiB.
MAX_WIPE_CHUNK: Final = 1024
MIN_WIPE_CHUNK_PERCENT: Final = 10
#: Build_time.
DEFAULT_VG: Final = "xenvg"
#: Dynamic parameter of a mirror on a node: its peer cannot be asked, so that an
#: activation does not wait for the comparison of both copies; not in Ganeti.
PEER_IS_AWAY: Final = "peer-is-away"
