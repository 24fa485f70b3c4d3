"""Hooks: the administrator's scripts around operations, on many nodes.

The logical units define which operation runs which scripts with which variables; this
package runs them. Specified in the hooks table.
"""

from ganeti.master.hooksmaster.environment import (
    common,
    merge,
    post_variables,
    pre_variables,
)
from ganeti.master.hooksmaster.runner import (
    Operation,
    ScriptResult,
    run,
    run_pre,
    warnings,
)

__all__ = [
    "Operation",
    "ScriptResult",
    "common",
    "merge",
    "post_variables",
    "pre_variables",
    "run",
    "run_pre",
    "warnings",
]
