"""``os-image``: the scripts of the OS definition ``image``.

It installs disk images, such as those that distributions publish for clouds. An image
is data of others: its checksum is required, its header is checked before any program
reads it, and programs get an open file, never a path from the image.
"""
