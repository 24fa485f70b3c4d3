"""Part of a run on every node: daemons of the node, hook scripts, node maintenance."""

import logging
import os
import re
from collections.abc import Mapping
from typing import Final

from ganeti.automation.watcher import (
    daemons,
    lost_processes,
    maintenance,
    stray_address,
)
from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.constants.protocols import hooks
from ganeti.base.text.control_chars import escape
from ganeti.store import choice

_log = logging.getLogger(__name__)
#: Daemons of every node, in their start order. A daemon that is not installed is
#: skipped; ganeti-kvmd ends by itself where no instance needs it.
_DAEMONS: Final = ("ganeti-noded", "ganeti-confd", "ganeti-mond", "ganeti-kvmd")
#: Only where the store is in etcd.
_STANDBY: Final = "ganeti-standby"
_PLUGIN_NAME: Final = re.compile(hooks.EXT_PLUGIN_MASK)
#: Seconds for one hook script; a script that hangs must not stop the watcher.
_HOOK_S: Final = 600.0
#: Bytes of each output of a hook script; a script that prints more is killed.
_HOOK_OUTPUT: Final = 1 << 20
#: Characters of a script's output that the log shows.
_OUTPUT_CHARS: Final = 1000


def run(watch: Watch, environ: Mapping[str, str]) -> None:
    """Look after this node; failures are logged and do not end the run.

    Args:
        watch: the run.
        environ: environment of the watcher, passed on to hook scripts.
    """
    for daemon in _DAEMONS:
        daemons.ensure(watch, daemon)
    if choice.is_etcd(watch.paths):
        daemons.ensure(watch, _STANDBY)
    stray_address.remove(watch)
    lost_processes.report(watch)
    run_hooks(watch, environ)
    maintenance.run(watch)


def run_hooks(watch: Watch, environ: Mapping[str, str]) -> None:
    """Run the scripts in ``hooks/watcher`` in the order of their names."""
    directory = f"{watch.paths.hooks_dir}/{hooks.HOOKS_NAME_WATCHER}"
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as err:
        _log.warning("hooks: %s", err)
        return
    env = {**environ, "LC_ALL": "C"}
    for name in names:
        path = f"{directory}/{name}"
        if not _is_script(name, path):
            _log.debug("hook %s: skipped, not an executable script", name)
            continue
        _run_hook(watch, path, env)


def _is_script(name: str, path: str) -> bool:
    return (
        _PLUGIN_NAME.fullmatch(name) is not None
        and os.path.isfile(path)
        and os.access(path, os.X_OK)
    )


def _run_hook(watch: Watch, path: str, env: Mapping[str, str]) -> None:
    try:
        result = watch.process.run_bounded(
            [path], timeout_s=_HOOK_S, max_output=_HOOK_OUTPUT, env=env
        )
    except errors.CommandError as err:
        _log.warning("hook %s", err)
        return
    output = escape(result.output.strip()[-_OUTPUT_CHARS:])
    level = logging.WARNING if result.failed else logging.INFO
    _log.log(level, "hook %s %s; output: %s", path, result.reason, output or "none")
