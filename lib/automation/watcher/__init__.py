"""The watcher: keeps daemons, instances and disks running; started by cron.

One run has two parts. The global part (`node_part`, `master_part`) looks after the
daemons of its node and, on the master, starts one child process per node group. A child
(`group_part`) restarts instances and activates disks of its group.

``ganeti.decisions.watching`` gives verdicts, with their reasons, on what the master
reports. The modules here query, submit jobs and write files.
Specified by the manual page ganeti-watcher(8).
"""
