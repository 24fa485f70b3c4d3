"""OP_TEST_OS_PARAMS: check that secret parameters arrive unmasked."""

from typing import Any

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit


class TestOsParams(LogicalUnit[opcodes.TestOsParams]):
    """Unit that logs the number of secrets, never the secrets."""

    __test__ = False
    READS_ONLY = True

    def execute(self) -> None:
        """Fail on a masked value."""
        secrets = self.op.osparams_secret or {}
        masked = sorted(name for name, value in secrets.items() if _is_masked(value))
        if masked:
            raise errors.OpExecError(f"OS parameters {', '.join(masked)}: masked")
        self.ctx.log.info(f"received {len(secrets)} secret OS parameter(s)")


def _is_masked(value: Any) -> bool:
    return bool(value == misc.REDACTED)
