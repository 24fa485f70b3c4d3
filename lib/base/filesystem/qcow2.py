"""The header of a qcow2 image, read without qemu-img.

Some releases of qemu-img open the other files that an image names when they only
describe it. Layout: QEMU's documentation, interop/qcow2.
"""

import struct
from typing import Final, NamedTuple

MAGIC: Final = b"QFI\xfb"
#: Bytes of a header up to the feature bits, which version 3 has.
SIZE: Final = 80
#: Incompatible feature: the content is in another file.
EXTERNAL_DATA: Final = 1 << 2
#: Magic, version, offset and length of the name of the backing file, cluster bits,
#: size, encryption; sizes and offsets of tables are left out.
_FIELDS: Final = struct.Struct(">4sIQIIQI")
_FEATURES: Final = struct.Struct(">Q")
_FEATURES_AT: Final = 72


class Header(NamedTuple):
    """The fields that matter for whether an image can be trusted.

    Attributes:
        version: of the format.
        size: of the content, in bytes.
        has_backing: whether it is only the difference from another file.
        is_encrypted: whether the content is.
        features: bits of features that a reader must know; 0 before version 3.
    """

    version: int
    size: int
    has_backing: bool
    is_encrypted: bool
    features: int

    @property
    def has_external_data(self) -> bool:
        """Whether the content is in another file."""
        return bool(self.features & EXTERNAL_DATA)


def read_header(data: bytes) -> Header | None:
    """Return the header at the beginning of an image; None if it is no qcow2 image.

    Args:
        data: the first `SIZE` bytes, or the whole image if it is shorter.
    """
    if len(data) < _FEATURES_AT or not data.startswith(MAGIC):
        return None
    _magic, version, backing, name_length, _bits, size, crypt = _FIELDS.unpack_from(
        data
    )
    features = 0
    if version > 2 and len(data) >= SIZE:
        (features,) = _FEATURES.unpack_from(data, _FEATURES_AT)
    return Header(version, size, bool(backing or name_length), bool(crypt), features)
