"""Files and scripts of OS definitions and external storage providers."""

from typing import Final

OS_SCRIPT_CREATE: Final = "create"
OS_SCRIPT_CREATE_UNTRUSTED: Final = "create_untrusted"
OS_SCRIPT_IMPORT: Final = "import"
OS_SCRIPT_EXPORT: Final = "export"
OS_SCRIPT_RENAME: Final = "rename"
OS_SCRIPT_VERIFY: Final = "verify"
#: Argument of the verify script.
OS_VALIDATE_PARAMETERS: Final = "parameters"
#: Check of the node itself, which the script does not get: can the OS be installed?
OS_VALIDATE_INSTALL: Final = "install"
OS_API_VERSIONS: Final = (10, 15, 20)
ES_ACTION_SNAPSHOT: Final = "snapshot"
#: Part of the answer of a node whose provider has no such script.
ES_NO_SNAPSHOTS: Final = "has no snapshots"
ES_ACTION_OPEN: Final = "open"
ES_ACTION_CLOSE: Final = "close"
#: OS parameter that names an image to install from, and the URLs that it may contain.
OS_IMAGE_PARAMETER: Final = "os-image"
#: It with those that belong to it where there is no OS definition.
OS_IMAGE_PARAMETERS: Final = (OS_IMAGE_PARAMETER, "sha256", "sha512", "format")
