"""ssconf: small text files with static cluster data on every node.

`SimpleStore` reads them; `write` replaces them, for node daemon and bootstrap tools.
`ganeti.config` computes their values.
"""

from ganeti.ssconf.store import SimpleStore
from ganeti.ssconf.writer import write

__all__ = ["SimpleStore", "write"]
