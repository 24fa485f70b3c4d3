"""Images that helper machines boot from in tests."""

import subprocess

from fakes import guests

MIB = 1 << 20
#: Writes zeros to the second disk from 1 MiB to 16 MiB by the BIOS, powers off by ACPI.
ZEROES = bytes.fromhex(
    "fa31c08ed88ed0bc007cfbfcb800108ec031ffb9004031c0f3abbe3e7cb80043b281cd1372128306"
    "467c40ff0e3c7c75e9ba0406b80020effaf4ebfce00110004000000000100008000000000000"
)
#: Halts, and never ends.
HALTS = bytes.fromhex("faf4ebfc")


def image(directory, code):
    """Write an image that boots into code; return its path on the node."""
    path = f"{directory}/helper.raw"
    with open(path, "wb") as disk:
        disk.write((code.ljust(510, b"\0") + b"\x55\xaa").ljust(MIB, b"\0"))
    return path


def install_image(path):
    """Write the install image that the product makes."""
    subprocess.run(
        [f"{guests.TINY}/make-install-image", path], check=True, capture_output=True
    )
