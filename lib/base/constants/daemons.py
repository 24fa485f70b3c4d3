"""Daemons: names, ports and log files."""

from typing import Final, NamedTuple


class Daemon(NamedTuple):
    """One daemon: transport, default port, master only, base name of its log."""

    proto: str | None
    port: int | None
    master_only: bool
    log_base: str | None


DAEMONS: Final[dict[str, Daemon]] = {
    "ganeti-noded": Daemon("tcp", 1811, False, "node-daemon"),
    "ganeti-rapi": Daemon("tcp", 5080, True, "rapi-daemon"),
    "ganeti-confd": Daemon("udp", 1814, False, "conf-daemon"),
    "ganeti-mond": Daemon("tcp", 1815, False, "monitoring-daemon"),
    "ganeti-metad": Daemon("tcp", 80, False, "meta-daemon"),
    "ganeti-wconfd": Daemon(None, None, True, "wconf-daemon"),
    "ganeti-luxid": Daemon(None, None, True, "luxi-daemon"),
    "ganeti-kvmd": Daemon(None, None, False, "kvm-daemon"),
    "ganeti-masterd": Daemon(None, None, False, "master-daemon"),
    "ganeti-standby": Daemon(None, None, False, "standby-daemon"),
    "ganeti-watcher": Daemon(None, None, False, None),
    "ganeti-cleaner": Daemon(None, None, False, None),
    "ganeti-maintd": Daemon("tcp", 1816, True, "maintenance-daemon"),
}
