"""OS parameters of the definition ``image``, from the environment of its scripts."""

import dataclasses
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final, Self

from ganeti.base import errors
from ganeti.base.net import urls

FORMATS: Final = ("qcow2", "raw")
#: Checksum parameter -> hexadecimal digits.
CHECKSUMS: Final = {"sha256": 64, "sha512": 128}
#: Parameters that may be checked; others are refused by the node.
_URL: Final = re.compile(r"[!-~]{1,2048}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Wanted image.

    Attributes:
        url: where to download it, empty for a file of the node.
        file: path on the node, empty for a URL.
        checksums: algorithm -> hexadecimal digest; empty for helper machines, and
            possibly for ``os-image``.
        format: ``qcow2`` or ``raw``.
    """

    url: str
    file: str
    checksums: dict[str, str]
    format: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings in a script's environment.

        The parameter ``os-image`` stands for one of url and file. Its clients know no
        checksums, and their images are raw.

        Raises:
            ParseError: names the parameter, the wanted and the found value.
        """
        given = {
            name: environ.get(f"OSP_{name.upper()}", "")
            for name in ("url", "file", "format", *CHECKSUMS)
        }
        image = environ.get("OSP_OS_IMAGE", "")
        places = [place for place in (given["url"], given["file"], image) if place]
        if len(places) != 1:
            raise errors.ParseError(
                "OS image: wanted one of the OS parameters url and file, or os-image"
                f" alone, found {'more' if places else 'none'}"
            )
        if image:
            given["file" if image.startswith("/") else "url"] = image
        if given["url"] and not _URL.fullmatch(given["url"]):
            raise errors.ParseError(
                "OS parameter url: wanted at most 2048 printable ASCII characters"
                " without spaces"
            )
        if given["file"] and not given["file"].startswith("/"):
            raise errors.ParseError(
                f"OS parameter file: wanted an absolute path, found {given['file']!r}"
            )
        form = given["format"] or ("raw" if image else FORMATS[0])
        if form not in FORMATS:
            raise errors.ParseError(
                f"OS parameter format: wanted {' or '.join(FORMATS)}, found {form!r}"
            )
        checksums = _checksums(given)
        if not checksums and not image:
            raise errors.ParseError(
                "OS image: wanted the OS parameter sha256 or sha512: without the"
                " checksum of the publisher, anything could be installed"
            )
        return cls(given["url"], given["file"], checksums, form)

    @property
    def source(self) -> str:
        """URL without secrets, or path, for messages."""
        return urls.shown(self.url) if self.url else self.file

    def hasher(self) -> "Hasher":
        """Return a new check of the content."""
        return Hasher(self)


def _checksums(given: Mapping[str, str]) -> dict[str, str]:
    checksums = {}
    for name, digits in CHECKSUMS.items():
        text = given[name].strip().lower()
        if not text:
            continue
        if not re.fullmatch(f"[0-9a-f]{{{digits}}}", text, re.ASCII):
            raise errors.ParseError(
                f"OS parameter {name}: wanted {digits} hexadecimal digits, found"
                f" {given[name]!r:.150}"
            )
        checksums[name] = text
    return checksums


class Hasher:
    """Compares content with the wanted checksums."""

    def __init__(self, wanted: Settings) -> None:
        self._wanted = wanted
        self._hashes: dict[str, Any] = {
            name: hashlib.new(name) for name in wanted.checksums
        }

    def update(self, data: bytes) -> None:
        """Add data."""
        for each in self._hashes.values():
            each.update(data)

    def check(self) -> None:
        """Refuse content with another checksum.

        Raises:
            OpExecError: contains both checksums.
        """
        for name, each in self._hashes.items():
            actual, wanted = each.hexdigest(), self._wanted.checksums[name]
            if not hmac.compare_digest(actual, wanted):
                raise errors.OpExecError(
                    f"image {self._wanted.source}: {name}: wanted {wanted}, found"
                    f" {actual}; the image was damaged or replaced"
                )
