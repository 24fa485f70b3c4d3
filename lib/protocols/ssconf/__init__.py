"""ssconf: small text files with static cluster data on every node.

`SimpleStore` reads them; `write` replaces them, for node daemon and bootstrap tools.
`ganeti.master.config` computes their values.
"""

from ganeti.protocols.ssconf.store import SimpleStore
from ganeti.protocols.ssconf.writer import write

__all__ = ["SimpleStore", "write"]
