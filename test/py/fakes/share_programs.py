"""A program in the place of virtiofsd: it has the options and the life of the real one.

It takes one connection, answers each request and ends with the connection.
"""

import os
import pathlib
import sys

_PROGRAM = """#!{python}
import socket, sys
[place] = [word for word in sys.argv if word.startswith("--fd=")]
assert sys.argv[sys.argv.index("-o") + 1].startswith("source=/")
listener = socket.socket(fileno=int(place.partition("=")[2]))
end = listener.accept()[0]
while end.recv(64):
    # The real one answers in two parts.
    for count in (12, 8):
        end.sendall(bytes(count))
"""


def make(directory: str) -> str:
    """Write the program; return its path."""
    path = pathlib.Path(directory, "virtiofsd")
    path.write_text(_PROGRAM.format(python=os.path.realpath(sys.executable)))
    path.chmod(0o755)
    return str(path)


def real() -> str:
    """Return the path of the real program; packages differ."""
    places = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
    return next(place for place in places if os.path.exists(place))
