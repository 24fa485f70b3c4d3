"""Changes of an instance: parameters, NICs, disks and other devices."""
