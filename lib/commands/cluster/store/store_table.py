"""Rows of the command table of ``gnt-cluster`` that are about the store."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option

BACKUP_STORE: Final = Command(
    "backup-store",
    "write the configuration and the jobs to a new file, while the master runs",
    arguments=(Argument("file"),),
    run="commands.cluster.store.store_backup:back_up",
    exits=((1, "the file exists, or the store cannot be read"),),
)
MIGRATE_STORE: Final = Command(
    "migrate-store",
    "move the configuration and the jobs to etcd, or back to files",
    options=(
        Option(
            ("--to",),
            "file, or etcd://HOST:PORT,HOST:PORT/PREFIX",
            dest="target",
            kind="string",
        ),
        *o.PLANNED,
    ),
    run="commands.cluster.store.migrate_store:run",
    exits=((1, "wrong target, or the store was not moved"),),
)
RESTORE_STORE: Final = Command(
    "restore-store",
    "replace the configuration by that of a backup, and add its finished jobs",
    arguments=(Argument("file"),),
    options=(o.FORCE, *o.PLANNED),
    run="commands.cluster.store.store_backup:restore",
    exits=((1, "declined, no backup of this cluster, or failure"),),
)
