"""Report of ``vcluster status``: nodes, processes and paths."""

import os
from typing import Any

from ganeti.devel.vcluster import isolation
from ganeti.devel.vcluster import layout as layout_module
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols.ssh import keys


def collect(layout: layout_module.Layout, control: NodeControl) -> dict[str, Any]:
    """Return the report that ``status --json`` prints.

    Keys: ``directory``, ``isolated``, ``cluster`` (name, address), ``master`` and
    ``nodes``, a list of objects with name, address, root, powered, ports, sockets,
    files, environment and processes.
    """
    return {
        "directory": layout.directory,
        "isolated": layout.isolated,
        "cluster": {
            "name": layout_module.CLUSTER_HOST,
            "address": layout.cluster_address,
        },
        "master": _current_master(layout),
        "bridge": layout.bridge if layout.isolated else None,
        "nodes": [_node(layout, control, node) for node in layout.nodes],
    }


def _current_master(layout: layout_module.Layout) -> str | None:
    """Return the master according to most nodes."""
    votes: dict[str, int] = {}
    for node in layout.nodes:
        path = layout.host_path(node, "/var/lib/ganeti/ssconf_master_node")
        try:
            with open(path, encoding="utf-8") as stream:
                name = stream.read().strip()
        except OSError:
            continue
        votes[name] = votes.get(name, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None


def _node(
    layout: layout_module.Layout, control: NodeControl, node: layout_module.Node
) -> dict[str, Any]:
    def on_host(path: str) -> str:
        return layout.host_path(node, path)

    ssh_dir = on_host("/root/.ssh")
    root_keys = [keys.root_key_path(ssh_dir, kind) for kind in keys.DEFAULT_BITS]
    return {
        "name": node.name,
        "address": node.address,
        "root": node.root,
        "powered": control.is_powered(node),
        "pid": isolation.holder(layout, node) if layout.isolated else None,
        "ports": {"sshd": layout.ssh_port} | layout_module.PORTS,
        "sockets": {
            "query": on_host("/var/run/ganeti/socket/ganeti-query"),
            "master": on_host("/var/run/ganeti/socket/ganeti-master"),
        },
        "files": {
            "server_pem": on_host("/var/lib/ganeti/server.pem"),
            "client_pem": on_host("/var/lib/ganeti/client.pem"),
            "rapi_pem": on_host("/var/lib/ganeti/rapi.pem"),
            "hmac_key": on_host("/var/lib/ganeti/hmac.key"),
            "known_hosts": on_host("/var/lib/ganeti/known_hosts"),
            "authorized_keys": on_host("/root/.ssh/authorized_keys"),
            "root_keys": [path for path in root_keys if os.path.exists(path)],
            "log_dir": on_host("/var/log/ganeti"),
        },
        "environment": layout.environment(node),
        "processes": [
            {"pid": process.pid, "name": process.name}
            for process in control.processes_on(node)
        ],
    }


def format_table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    master = report["master"]
    mode = "isolated" if report["isolated"] else "simple"
    cluster = f"{report['cluster']['name']} ({report['cluster']['address']})"
    lines = [f"{cluster} in {report['directory']}, {mode}"]
    for node in report["nodes"]:
        names: dict[str, int] = {}
        for process in node["processes"]:
            names[process["name"]] = names.get(process["name"], 0) + 1
        running = ", ".join(
            name if count == 1 else f"{name} x{count}"
            for name, count in sorted(names.items())
        )
        role = "master" if node["name"] == master else ""
        state = "on" if node["powered"] else "OFF"
        lines.append(
            f"{node['name']:24} {node['address']:15} {role:6} {state:3}"
            f" {running or 'nothing runs'}"
        )
    return "\n".join(lines)
