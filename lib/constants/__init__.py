"""Values that cross a process or touch the disk, one module a topic.

Import the topic: ``from ganeti.constants import disks``. Tunables do not belong
here; they stand in the module that uses them.
"""
