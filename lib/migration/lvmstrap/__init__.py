"""``lvmstrap``: show the disks of a machine, and make a volume group of empty ones.

`disks` finds the disks and what is on them, `kernel` asks who has a device open,
`creation` makes the group, `main` is the command line. See lvmstrap(8).
"""
