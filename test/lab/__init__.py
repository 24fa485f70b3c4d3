"""Real machines for tests of storage: Debian under QEMU, with the stock kernel.

The machine that runs the tests lacks what disks of instances need: DRBD, the device mapper,
LVM. A machine of the lab has all of it. Its root file system is that of this machine, read
over virtio-9p, below what ``make install`` and Debian's packages of the lab add; its changes
go to a disk of its own, so that they survive a power cycle. A second disk, and more on
request, are for volume groups.

``product`` installs this tree, ``initramfs`` makes what the kernel starts with, ``network``
is the bridge between the machines, ``machine`` one QEMU, ``lab`` all of them and their
record on disk, ``__main__`` the command. ``guest`` has the scripts that run inside.
"""
