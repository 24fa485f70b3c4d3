"""Daemons with users of their own on isolated machines, run by a hidden interpreter.

The interpreter of a developer is often below /root, which no other user may enter. Daemons
that change to their own users need it there.
"""

import sys

#: Shows a directory that belongs to one user, such as /root with the interpreter of a
#: developer in it, to all users of this node.
_REVEAL = """
set -e
kept=/srv/ganeti/below$(echo "$0" | tr / _)
mkdir -p "$kept"
mount --rbind "$0" "$kept"
mount -t tmpfs -o mode=711 tmpfs "$0"
for each in "$kept"/* "$kept"/.[!.]*; do
  new=$0/$(basename "$each")
  if [ -L "$each" ]; then cp -P "$each" "$new"; continue
  elif [ -d "$each" ]; then mkdir "$new"
  elif [ -e "$each" ]; then touch "$new"
  else continue; fi
  mount --rbind "$each" "$new"
done
"""
_UNREADABLE = "from ganeti.base import daemon_users as d; print(d.unreadable_program())"


def reveal(cluster, name):
    """Let all users of a machine read the programs under test."""
    code = f"import sys; sys.path += {sys.path!r}; {_UNREADABLE}"
    for _ in range(5):
        where = cluster.check(sys.executable, "-c", code, node=name).strip()
        if not where:
            return
        cluster.check("sh", "-c", _REVEAL, where, node=name)
    raise AssertionError(f"{where} of {name} stays unreadable")
