"""Directory tree of a node, as on a machine that an administrator prepared."""

import os
import shutil
from typing import Final

from ganeti import _buildconf
from ganeti.base.filesystem import files
from ganeti.devel.vcluster import layout as layout_module
from ganeti.protocols.ssh import authorized_keys, keys

#: Directories of a node with their modes.
DIRECTORIES: Final = (
    ("/etc/default", 0o755),
    ("/etc/ganeti/hooks", 0o755),
    ("/etc/ganeti/restricted-commands", 0o755),
    ("/etc/ssh", 0o755),
    ("/root/.ssh", 0o700),
    ("/srv/ganeti/file-storage", 0o755),
    ("/srv/ganeti/export", 0o755),
    ("/srv/ganeti/os", 0o755),
    ("/var/backups", 0o755),
    ("/var/lib/ganeti", 0o755),
    ("/var/lock", 0o755),
    ("/var/log/ganeti", 0o755),
    ("/var/run/ganeti", 0o755),
)
#: Access rules: keys that may log in besides those of the cluster. A removed node
#: refuses all other nodes, so without these keys it could not be added again.
_ADMINISTRATORS: Final = "/etc/ssh/administrators"


def make_cluster(layout: layout_module.Layout) -> None:
    """Create the directories that all nodes share."""
    os.makedirs(layout.directory, mode=0o755, exist_ok=True)
    for name in ("shared", "state"):
        os.makedirs(os.path.join(layout.directory, name), exist_ok=True)


def make_node(layout: layout_module.Layout, node: layout_module.Node) -> None:
    """Create a node's tree, as on a machine outside of any cluster."""
    for path, mode in DIRECTORIES:
        files.make_dir(layout.host_path(node, path), mode)
    shared = layout.host_path(node, "/srv/ganeti/shared-file-storage")
    if layout.isolated:
        files.make_dir(shared, 0o755)
    elif not os.path.islink(shared):
        os.symlink(layout.shared_directory, shared)
    own = "" if layout.isolated else node.address
    for path, text, mode in (
        ("/etc/hosts", layout_module.hosts_text(layout), 0o644),
        (
            "/etc/default/ganeti",
            layout_module.defaults_text(own, monitoring=layout.monitoring),
            0o644,
        ),
        ("/etc/ganeti/file-storage-paths", storage_paths(), 0o600),
        ("/etc/ssh/sshd_config", sshd_config(layout, node), 0o600),
    ):
        files.write_file(layout.host_path(node, path), text, mode=mode)
    _make_host_keys(layout, node)
    _link_os(layout, node)
    if not layout.isolated:
        _write_wrapper(layout, node)


def authorize(layout: layout_module.Layout, public_key: str) -> None:
    """Authorise a key on all nodes, as an administrator does before adding them."""
    for node in layout.nodes:
        for path in ("/root/.ssh/authorized_keys", _ADMINISTRATORS):
            authorized_keys.add(layout.host_path(node, path), [public_key])


def copy_keys(layout: layout_module.Layout, node: layout_module.Node) -> None:
    """Copy the first node's host key and root key to a node."""
    first = layout.master_node
    for place, directory in (
        (keys.host_key_path, "/etc/ssh"),
        (keys.root_key_path, "/root/.ssh"),
    ):
        source = place(layout.host_path(first, directory), "rsa")
        keys.save(keys.load(source), place(layout.host_path(node, directory), "rsa"))


def storage_paths() -> str:
    """Return the directories below which file disks are allowed."""
    return (
        f"{_buildconf.FILE_STORAGE_DIR}\n{_buildconf.SHARED_FILE_STORAGE_DIR}\n"
        "/srv/ganeti/gluster\n"
    )


def _make_host_keys(layout: layout_module.Layout, node: layout_module.Node) -> None:
    directory = layout.host_path(node, "/etc/ssh")
    kinds = ("ed25519", "rsa") if node.name == layout.master else ("ed25519",)
    for kind in kinds:
        path = keys.host_key_path(directory, kind)
        if not os.path.exists(path):
            keys.save(keys.generate(kind, comment=f"root@{node.name}"), path)


def _link_os(layout: layout_module.Layout, node: layout_module.Node) -> None:
    """Link the OS definitions of the source tree or the package."""
    for source in layout_module.os_definitions():
        target = layout.host_path(node, f"/srv/ganeti/os/{os.path.basename(source)}")
        if not os.path.lexists(target):
            os.symlink(source, target)


def sshd_config(layout: layout_module.Layout, node: layout_module.Node) -> str:
    """Return the configuration of a node's SSH server."""
    root = "" if layout.isolated else node.root
    env = layout.environment(node)
    env.pop("HOME")
    # Keeps bash from reading the start-up files of the user who runs the cluster.
    env["SHLVL"] = "1"
    lines = [
        f"Port {layout.ssh_port}",
        *(() if layout.isolated else (f"ListenAddress {node.address}",)),
        *(
            f"HostKey {keys.host_key_path(f'{root}/etc/ssh', kind)}"
            for kind in ("rsa", "ecdsa", "ed25519")
        ),
        f"PidFile {root}/var/run/ganeti/sshd.pid",
        f"AuthorizedKeysFile {root}/root/.ssh/authorized_keys {root}{_ADMINISTRATORS}",
        "StrictModes no",
        "UsePAM no",
        "UseDNS no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "MaxStartups 200",
        "MaxSessions 100",
        "PrintMotd no",
        "PrintLastLog no",
        "SetEnv " + " ".join(f"{name}={value}" for name, value in env.items()),
        "Subsystem sftp internal-sftp",
    ]
    return "\n".join(lines) + "\n"


def _write_wrapper(layout: layout_module.Layout, node: layout_module.Node) -> None:
    exports = "".join(
        f"export {name}='{value}'\n" for name, value in layout.environment(node).items()
    )
    text = f'#!/bin/sh\n# Runs a command on {node.name}.\n{exports}exec "$@"\n'
    files.write_file(os.path.join(node.root, "cmd"), text, mode=0o755)


def remove(layout: layout_module.Layout) -> None:
    """Remove everything that belongs to the cluster."""
    for node in layout.nodes:
        shutil.rmtree(node.root, ignore_errors=True)
    for name in ("shared", "state", "boot"):
        shutil.rmtree(os.path.join(layout.directory, name), ignore_errors=True)
    files.remove_file(os.path.join(layout.directory, "power"))
    files.remove_file(os.path.join(layout.directory, layout_module.STATE_FILE))
