"""Starts daemons in forks of one process that has all modules loaded already.

``python -m fakes.crash_daemons SHIM [NAME...]`` with the shim in LD_PRELOAD. Reads requests as JSON
lines and answers each with a line. A daemon runs its real ``main`` in the foreground; the
start of an interpreter, which takes most of a second, is all that is left out.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import traceback

_PR_SET_PDEATHSIG = 1
MAINS = {
    "ganeti-masterd": "ganeti.daemons.mains.masterd",
    "ganeti-noded": "ganeti.daemons.mains.noded",
    "ganeti-standby": "ganeti.daemons.mains.standby",
}


def start(shim, request):
    """Fork a daemon; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        # Nothing outlives the tests, however they end.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, fd in enumerate((null, log, log)):
            os.dup2(fd, number)
        os.environ.clear()
        os.environ.update(request["env"])
        names = [request[key].encode() for key in ("root", "shared", "record")]
        assert not shim.crash_begin(*names), "crash_begin failed"
        sys.argv = [request["name"], *request["argv"]]
        code = sys.modules[MAINS[request["name"]]].main()
    except BaseException:  # noqa: BLE001 - the fork must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid, timeout_s):
    """Return the wait status of a child, None if it still runs after a time."""
    fd = os.pidfd_open(pid)
    try:
        if not select.select([fd], [], [], timeout_s)[0]:
            return None
    finally:
        os.close(fd)
    return os.waitpid(pid, 0)[1]


def main():
    shim = ctypes.CDLL(sys.argv[1])
    os.environ.pop("LD_PRELOAD", None)
    for name in MAINS.values():
        importlib.import_module(name)
    from ganeti.node import calls as backend

    backend.load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "start":
            answer = start(shim, request)
        else:
            answer = wait(request["pid"], request["timeout_s"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
