"""A program in the place of swtpm: it has the options and the life of the real one.

It answers the first command of its control channel and keeps later data as its state.
It ends with the connection, but without data it waits without end, as the real one does.
"""

import os
import pathlib
import sys

_PROGRAM = """#!{python}
import os, pwd, signal, socket, sys
words = sys.argv[2:]
value = lambda name: words[words.index(name) + 1]
end = socket.socket(fileno=int(value("--ctrl").rpartition("=")[2]))
state = value("--tpmstate").partition("=")[2].partition(",")[0] + "/tpm2-00.permall"
if "--runas" in words:
    user = pwd.getpwnam(value("--runas"))
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
assert sys.argv[1] == "socket" and "--tpm2" in words and "--terminate" in words
assert end.recv(64) == bytes([0, 0, 0, 1])
end.sendall(bytes(8))
used = False
while data := end.recv(64):
    used = True
    if data != b"read":
        with open(state + ".new", "wb") as out:
            out.write(data)
        os.rename(state + ".new", state)
    end.sendall(open(state, "rb").read() if os.path.exists(state) else b"new")
if not used:
    signal.pause()
"""


def make(directory: str) -> str:
    """Write the program; return its path."""
    path = pathlib.Path(directory, "swtpm")
    path.write_text(_PROGRAM.format(python=os.path.realpath(sys.executable)))
    path.chmod(0o755)
    return str(path)
