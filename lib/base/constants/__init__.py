"""Values of protocols and file formats, one module per topic.

Import the topic: ``from ganeti.base.constants import disks``. Tunables do not belong
here; they are in the module that uses them.
"""
