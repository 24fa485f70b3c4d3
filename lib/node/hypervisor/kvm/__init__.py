"""KVM guests under QEMU.

`driver` has the driver class; `argv` and, in `devices`, `disks_and_nics` and `display`
build command lines and are pure; `launch`, `devices.hotplug` and, in `moving`,
`sending` and `arriving` (the ends of a migration) control emulators over the protocol
client `qmp`; `moving.layout` checks the guest of a migration; `devices.taps` creates
NICs; `files` and `runtime` have the files of guests on the node.
"""

from ganeti.node.hypervisor.kvm.driver import KvmHypervisor

__all__ = ["KvmHypervisor"]
