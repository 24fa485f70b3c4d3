"""How LUXI messages look on the wire; shared by both ends."""

from typing import Final

#: Ends every message and never occurs inside one.
END: Final = b"\x03"
#: Longest request that a server takes: 10,000 jobs at once are about 8 MB. Decoded
#: JSON takes up to twenty times the room of its text, so this bounds memory too.
MAX_MESSAGE_BYTES: Final = 32 << 20
KEY_METHOD: Final = "method"
KEY_ARGS: Final = "args"
KEY_SUCCESS: Final = "success"
KEY_RESULT: Final = "result"
KEY_VERSION: Final = "version"
