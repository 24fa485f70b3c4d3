"""Keys of the node_verify RPC."""

from typing import Final

NV_ACCEPTED_STORAGE_PATHS: Final = "allowed-file-storage-paths"
NV_BRIDGES: Final = "bridges"
NV_CLIENT_CERT: Final = "client-cert"
#: Not in the documented protocol; nodes that do not know it leave it out.
NV_COMPRESSION: Final = "compression-tools"
#: Not in the documented protocol; nodes that do not know it leave it out.
#: Users of the running daemons that have users of their own.
NV_DAEMON_USERS: Final = "daemon-users"
NV_DISK_FILES: Final = "disk-files"
NV_DRBDHELPER: Final = "drbd-helper"
NV_DRBDLIST: Final = "drbd-list"
NV_DRBDVERSION: Final = "drbd-version"
NV_EXCLUSIVEPVS: Final = "exclusive-pvs"
#: Not in the documented protocol; nodes that do not know it leave it out.
NV_EXPORTS: Final = "exports"
NV_FILELIST: Final = "filelist"
NV_FILE_STORAGE_PATH: Final = "file-storage-path"
NV_GLUSTER_STORAGE_PATH: Final = "gluster-storage-path"
#: Not in the documented protocol; nodes that do not know it leave it out.
NV_GUEST_FILES: Final = "guest-files"
NV_HVINFO: Final = "hvinfo"
NV_HVPARAMS: Final = "hvparms"
NV_HYPERVISOR: Final = "hypervisor"
NV_INSTANCELIST: Final = "instancelist"
NV_LVLIST: Final = "lvlist"
NV_MASTERIP: Final = "master-ip"
NV_NODELIST: Final = "nodelist"
NV_NODENETTEST: Final = "node-net-test"
NV_NODESETUP: Final = "nodesetup"
NV_NONVMNODES: Final = "nonvmnodes"
NV_OOB_PATHS: Final = "oob-paths"
NV_OSLIST: Final = "oslist"
NV_PVLIST: Final = "pvlist"
NV_SHARED_FILE_STORAGE_PATH: Final = "shared-file-storage-path"
#: Master candidates whose keys a node lacks, and the keys that the master has.
NV_SSH_AUTHORISED: Final = "ssh-authorised"
NV_SSH_CANDIDATE_KEYS: Final = "ssh-candidate-keys"
NV_SSH_CLUTTER: Final = "ssh-clutter"
NV_SSH_SETUP: Final = "ssh-setup"
NV_TIME: Final = "time"
NV_USERSCRIPTS: Final = "user-scripts"
NV_VERSION: Final = "version"
NV_VGLIST: Final = "vglist"

#: A public key is missing, and an entry of a master candidate.
NO_PUBLIC_KEY: Final = "has no public key of node"
NOT_AUTHORISED: Final = "does not authorise the key of master candidate"
#: First words of the lines of `NV_SSH_SETUP` about keys that a node lacks, which the
#: master can send it.
#: Keys that a node has and should not have, each with the name of their owner.
PUBLIC_KEY_OF: Final = "has a public key of"
STILL_AUTHORISED: Final = "authorises the key of node"
SSH_LACKS: Final = (NO_PUBLIC_KEY, NOT_AUTHORISED)
