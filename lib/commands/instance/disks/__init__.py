"""Commands of ``gnt-instance`` about disks."""
