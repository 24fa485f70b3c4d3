"""OS parameters of the seed that cloud-init reads in a guest, and its files.

The names belong to OS parameters of any operating system. They are for the guest alone:
scripts of OS definitions do not get them. Not in Ganeti.
"""

from typing import Final

#: Beginning of the names of all these parameters.
PREFIX: Final = "cloud-init-"
SSH_KEY: Final = "cloud-init-ssh-key"
USER_DATA: Final = "user-data"
META_DATA: Final = "meta-data"
NETWORK_CONFIG: Final = "network-config"
#: File of the seed -> most bytes. All together fit the fixed size of a seed.
FILES: Final = {
    USER_DATA: 64 * 1024,
    META_DATA: 16 * 1024,
    NETWORK_CONFIG: 16 * 1024,
}
#: Parameter -> most bytes.
PARAMETERS: Final = {
    **{f"{PREFIX}{name}": limit for name, limit in FILES.items()},
    SSH_KEY: 16 * 1024,
}
#: The only hypervisor whose guests get a seed.
HYPERVISOR: Final = "kvm"
#: Label of the seed's file system, by which cloud-init finds it.
LABEL: Final = "cidata"
#: Bytes of each seed: a device of a migrating guest may not change its size.
SEED_BYTES: Final = 1024 * 1024
