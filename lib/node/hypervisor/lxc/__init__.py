"""Driver for LXC: containers with their root file system on the instance's first disk.

``driver`` has the operations; ``config`` makes the container's configuration file,
``root_disk`` finds the file system on a disk, ``cgroups`` reads and changes limits.
LXC's own programs do the rest; its release 4 or newer and version 2 of cgroups are
needed. Specified in the hypervisor document, section 5.
"""

from ganeti.node.hypervisor.lxc.driver import LxcHypervisor

__all__ = ["LxcHypervisor"]
