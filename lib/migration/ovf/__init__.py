"""``ovfconverter``: exports of instances from and to the Open Virtualization Format.

Specified in DMTF DSP0243, version 1.1. `envelope` is the description of a machine,
`images` the content of its disks, `conversion` the files; `main` is the command
line.
"""
