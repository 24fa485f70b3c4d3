"""ssconf file names below the state directory and their order."""

from typing import Final

#: Prefix of each file name.
FILEPREFIX: Final = "ssconf_"
#: Largest file, in bytes: 263,000 names of 254 letters. A name is in the store, too, with
#: more beside it, so the 128 MiB of a whole copy of the store end first.
MAX_SIZE: Final = 64 * 1024 * 1024
#: Keys, one file each.
KEYS: Final = (
    "cluster_name",
    "cluster_tags",
    "enabled_user_shutdown",
    "file_storage_dir",
    "gluster_storage_dir",
    "hvparams_chroot",
    "hvparams_fake",
    "hvparams_kvm",
    "hvparams_lxc",
    "hvparams_xen-hvm",
    "hvparams_xen-pvm",
    "hypervisor_list",
    "instance_list",
    "maintain_node_health",
    "master_candidates",
    "master_candidates_certs",
    "master_candidates_ips",
    "master_ip",
    "master_netdev",
    "master_netmask",
    "master_node",
    "networks",
    "node_list",
    "node_primary_ips",
    "node_secondary_ips",
    "node_vm_capable",
    "nodegroups",
    "offline_nodes",
    "online_nodes",
    "primary_ip_family",
    "release_version",
    "shared_file_storage_dir",
    "ssh_ports",
    "uid_pool",
)
