"""Release, protocol and file format versions."""

from typing import Final

from ganeti import _buildconf

#: Shown by --version; ssconf release_version. configure.ac states it.
RELEASE_VERSION: Final[str] = _buildconf.RELEASE_VERSION
CONFIG_VERSION: Final = 3010000
PROTOCOL_VERSION: Final = 3010000
#: Equals CONFIG_VERSION; optional field in luxi requests.
LUXI_VERSION: Final = 3010000
OS_API_VERSIONS: Final = (10, 15, 20)
#: Version in export config.ini.
EXPORT_VERSION: Final = 0
