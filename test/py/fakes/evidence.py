"""Output of a failed daemon test beside its error: the ends of the nodes' logs.

Works on directories that look like nodes, whoever made them. Lines that hold a secret
of the node are left out.
"""

import contextlib
import pathlib

#: Lines of each log file.
LINES = 25
#: Longest line that is shown.
_WIDTH = 400
_LOGS = "var/log/ganeti"
_SECRET_FILES = ("var/lib/ganeti/*.pem", "var/lib/ganeti/*.key", "root/.ssh/id_*[!b]")
_SECRET_FILES += ("var/lib/ganeti/cluster-domain-secret", "etc/ssh/ssh_host_*_key")
#: Shorter lines of such files are no secrets.
_LEAST = 16


def of_cluster(directory):
    """Return the ends of all logs of a virtual cluster."""
    top = pathlib.Path(directory)
    roots = sorted(path.parents[2] for path in top.glob(f"*/{_LOGS}"))
    agent = [_tail(path, ()) for path in sorted(top.glob("state/*.log"))]
    return "".join([*agent, *map(of_node, roots)])


def of_node(root):
    """Return the ends of all logs of a node, given by its root directory."""
    secrets = _secrets(root)
    paths = sorted(pathlib.Path(root, _LOGS).rglob("*.log"))
    return "".join(_tail(path, secrets) for path in paths)


def _tail(path, secrets):
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()[-LINES:]
        shown = [_safe(line, secrets)[:_WIDTH] for line in lines]
        return "\n".join([f"==> {path}", *shown, ""]) if shown else ""
    return ""


def _safe(line, secrets):
    return "(left out)" if any(secret in line for secret in secrets) else line


def _secrets(root):
    actual = set()
    for pattern in _SECRET_FILES:
        for path in pathlib.Path(root).glob(pattern):
            with contextlib.suppress(OSError):
                lines = path.read_text(errors="replace").splitlines()
                actual |= {line for line in lines if len(line) >= _LEAST}
    return actual
