"""Devices of a KVM guest: disks, NICs, displays, TPM and shared directories."""
