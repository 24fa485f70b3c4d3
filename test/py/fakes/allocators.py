"""Requests of masters to allocators, for tests."""

from ganeti.master import iallocator

NEW = "new.example.com"


def allocate(name=NEW):
    """Return a request for a place for a small instance."""
    return iallocator.Allocate(
        name=name,
        disk_template="file",
        tags=(),
        os="tiny",
        vcpus=1,
        memory=128,
        spindle_use=1,
        disks=[{"size": 1024, "mode": "rw"}],
        nics=[],
        hypervisor="kvm",
    )
