"""Release, protocol and file format versions."""

from typing import Final

from ganeti import _buildconf

#: Shown by --version; ssconf release_version. configure.ac states it.
RELEASE_VERSION: Final[str] = _buildconf.RELEASE_VERSION
VERSION_MAJOR, VERSION_MINOR, VERSION_REVISION = map(int, RELEASE_VERSION.split("."))
CONFIG_MAJOR: Final = 3
CONFIG_MINOR: Final = 1
#: Always 0, so patch releases share the config version.
CONFIG_REVISION: Final = 0
CONFIG_VERSION: Final = 3010000
PROTOCOL_VERSION: Final = 3010000
#: Equals CONFIG_VERSION; optional field in luxi requests.
LUXI_VERSION: Final = 3010000
RAPI_VERSION: Final = 2
#: Names the versioned library dirs.
DIR_VERSION: Final = f"{VERSION_MAJOR}.{VERSION_MINOR}"
OS_API_V10: Final = 10
OS_API_V15: Final = 15
OS_API_V20: Final = 20
OS_API_VERSIONS: Final = (10, 15, 20)
#: Version in export config.ini.
EXPORT_VERSION: Final = 0
HOOKS_VERSION: Final = 2
IALLOCATOR_VERSION: Final = 2
#: Remote import/export handshake.
RIE_VERSION: Final = 0
JOB_QUEUE_VERSION: Final = 1
CONFD_PROTOCOL_VERSION: Final = 1
MOND_LATEST_API_VERSION: Final = 1
#: Version text of built-in collectors.
BUILTIN_DATA_COLLECTOR_VERSION: Final = "B"
