"""KVM guests under QEMU.

`driver` has the driver class; `argv`, `devices` and `display` build command lines and
are pure; `launch`, `sending` and `arriving` (the ends of a migration) and `hotplug`
control emulators over the protocol client `qmp`; `layout` checks the guest of a
migration; `taps` creates NICs; `files` and `runtime` have the files of guests on the
node.
"""

from ganeti.node.hypervisor.kvm.driver import KvmHypervisor

__all__ = ["KvmHypervisor"]
