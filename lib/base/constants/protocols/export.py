"""Constants of import, export and transfer."""

from typing import Final

EXPORT_CONF_FILE: Final = "config.ini"
IEM_IMPORT: Final = "import"
IEM_EXPORT: Final = "export"
IEIO_FILE: Final = "file"
IEIO_RAW_DISK: Final = "raw"
IEIO_SCRIPT: Final = "script"
IEC_NONE: Final = "none"
IEC_GZIP: Final = "gzip"
IEC_GZIP_FAST: Final = "gzip-fast"
IEC_GZIP_SLOW: Final = "gzip-slow"
#: Name -> command of compression tools that are not a program of the same name.
IEC_COMMANDS: Final = {
    IEC_GZIP: ("gzip",),
    IEC_GZIP_FAST: ("gzip", "-1"),
    IEC_GZIP_SLOW: ("gzip", "-9"),
}
IEC_DEFAULT_TOOLS: Final = ("gzip", "gzip-fast", "gzip-slow")
#: Version of the hand-over between transfer programs.
RIE_VERSION: Final = 0
#: Seconds.
RIE_CERT_VALIDITY: Final = 86400
IE_MAGIC_RE: Final = "^[-_.a-zA-Z0-9]{5,100}$"
