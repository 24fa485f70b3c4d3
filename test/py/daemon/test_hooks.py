"""Hooks over the whole life of a cluster: which run, where, and their environment.

Scripts of all nodes record their environment; the table of documented hooks says what
must be in it.
"""

import json
import pathlib
import shlex
import shutil

import pytest

pytestmark = [pytest.mark.daemon, pytest.mark.core]
SPEC = json.loads(
    (pathlib.Path(__file__).parents[2] / "data/spec/hooks.json").read_text()
)
ROWS = {row["hook"]: row for row in SPEC["operations"]}
NODES = ("node1", "node2", "node3")
COMMON = {"HOOKS_VERSION", "OP_CODE", "DATA_DIR", "HOOKS_PHASE", "HOOKS_PATH"} | {
    "OBJECT_TYPE",
    "CLUSTER",
    "MASTER",
}
RECORDER = """#!/bin/sh
# Not `env`: shells do not pass on names with dots.
tr '\\0' '\\n' < /proc/$$/environ > \
    "$(mktemp "{place}/$GANETI_HOOKS_PATH.$GANETI_HOOKS_PHASE.XXXXXX")"
"""
#: An allocator whose one move is only tried.
IDLE = """#!/bin/sh
if grep -q i1.vc.test "$1"; then
  moved='["i1.vc.test", "g3", ["node3.vc.test"]]'
  job='[{"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "i1.vc.test",
         "target_node": "node3.vc.test", "dry_run": true}]'
fi
echo '{"success": true, "info": "", "result": [['"$moved"'], [], ['"$job"']]}'
"""
ADD = "gnt-instance add -H fake -o tiny+default --no-nics"

#: command | hook | nodes before | nodes after; in this order
LIFE = f"""
gnt-cluster modify -C 9                         | cluster-modify         | 1   | 1
gnt-cluster verify                              | cluster-verify         |     | 123
gnt-group add g1                                | group-add              | 1   | 1
gnt-group modify --alloc-policy=last_resort g1  | group-modify           | 1   | 1
gnt-group rename g1 g2                          | group-rename           | 1   | 1
gnt-group assign-nodes g2 node3                 |                        |     |
gnt-group rename g2 g3                          | group-rename           | 13  | 13
gnt-group evacuate -I idle g3                   | group-evacuate         | 13  | 13
gnt-network add --network=10.9.8.0/24 lan       | network-add            | 1   | 1
gnt-network modify --gateway=10.9.8.1 lan       | network-modify         | 1   | 1
gnt-network connect -N mode=bridged,link=b lan  | network-connect        | 123 | 123
gnt-network disconnect lan default              | network-disconnect     | 12  | 12
gnt-network rename lan lan2                     | network-rename         | 13  | 13
gnt-network disconnect lan2 g3                  | network-disconnect     | 3   | 3
gnt-network remove lan2                         | network-remove         | 1   | 1
{ADD} -t sharedfile -s 4m -n node2 i1.vc.test   | instance-add           | 12  | 12
gnt-instance change-group -I idle --to g3 i1    | instance-change-group  | 1   | 1
gnt-group assign-nodes default node3            |                        |     |
gnt-group remove g3                             | group-remove           | 1   | 1
gnt-node modify -D yes node3                    | node-modify            | 13  | 13
gnt-node modify -D no --auto-promote node3      | node-modify            | 13  | 13
gnt-instance reboot i1                          | instance-reboot        | 12  | 12
gnt-instance modify -B vcpus=2 i1               | instance-modify        | 12  | 12
gnt-instance failover -f -n node3 i1            | instance-failover      | 13  | 123
gnt-instance migrate -f -n node2 i1             | instance-migrate       | 123 | 123
gnt-node migrate -f -n node3 node2              | node-migrate           | 1   | 1
gnt-instance grow-disk i1 0 4m                  | disk-grow              | 13  | 13
gnt-instance shutdown i1                        | instance-stop          | 13  | 13
gnt-instance reinstall -f i1                    | instance-reinstall     | 13  | 13
gnt-instance rename i1 i2.vc.test               | instance-rename        | 13  | 13
gnt-instance startup i2                         | instance-start         | 13  | 13
gnt-instance remove -f i2                       | instance-remove        | 1   | 13
gnt-node remove node3                           | node-remove            | 12  | 123
gnt-node add --no-ssh-key-check node3           | node-add               | 12  | 123
gnt-cluster list-tags                           |                        |     |
gnt-node remove node3                           | node-remove            | 12  | 123
gnt-node remove node2                           | node-remove            | 1   | 12
gnt-cluster destroy --yes-do-it                 | cluster-destroy        |     | 1
"""


def words(command):
    return [part.strip() for part in command.split("|")]


class Recorder:
    """Scripts on all nodes that record their environment."""

    def __init__(self, cluster):
        self._cluster = cluster
        for node in NODES:
            self._place(node).mkdir()
            for hook in (*ROWS, "config-update"):
                for phase in ("pre", "post"):
                    self._install(node, f"{hook}-{phase}.d")

    def _place(self, node):
        return self._cluster.file("/srv/recorded", node=node)

    def _install(self, node, folder):
        script = self._cluster.file(f"/etc/ganeti/hooks/{folder}/50-record", node=node)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(RECORDER.format(place=self._place(node)))
        script.chmod(0o755)

    def take(self):
        """Return (hook, phase, node number) -> environment, and forget."""
        actual = {}
        for node in NODES:
            for path in self._place(node).iterdir():
                hook, phase, _ = path.name.split(".")
                lines = path.read_text().splitlines()
                env = dict(line.split("=", 1) for line in lines if "=" in line)
                actual[hook, phase, node[-1]] = env
            shutil.rmtree(self._place(node))
            self._place(node).mkdir()
        return actual


def documented(row, nodes):
    """Return the variables that are always there."""
    names = set()
    for name in row["env"]:
        if name == "INSTANCE_ENV":
            names |= {
                item["var"]
                for item in SPEC["instance_env"]
                if not any(part in item["var"] for part in ("n_", "<"))
            }
        elif name == "NETWORK_ENV":
            # The others are left out if they have no value.
            names |= {"NETWORK_NAME", "NETWORK_SUBNET"}
        elif "<node name>" in name:
            names |= {name.replace("<node name>", f"{node}.vc.test") for node in nodes}
        elif "(" not in name:
            names.add(name)
    return names


def check_environment(row, phase, env, nodes):
    assert {f"GANETI_{name}" for name in COMMON} <= env.keys()
    reported = {
        name: env[f"GANETI_{name}"]
        for name in ("OP_CODE", "HOOKS_PHASE", "HOOKS_PATH", "OBJECT_TYPE", "MASTER")
    }
    assert reported == {
        "OP_CODE": row["op"],
        "HOOKS_PHASE": phase,
        "HOOKS_PATH": row["hook"],
        "OBJECT_TYPE": row["object_type"],
        "MASTER": "node1.vc.test",
    }
    assert env["PATH"] == "/sbin:/bin:/usr/sbin:/usr/bin"
    missing = {f"GANETI_{name}" for name in documented(row, nodes)} - env.keys()
    assert missing == set()


@pytest.fixture(scope="module")
def cluster(cluster_of):
    actual = cluster_of(3)
    allocator = actual.file("/usr/local/lib/ganeti/iallocators/idle")
    allocator.parent.mkdir(parents=True, exist_ok=True)
    allocator.write_text(IDLE)
    allocator.chmod(0o755)
    return actual


def test_every_hook_of_a_life_runs_where_and_with_what_is_documented(cluster):
    recorder = Recorder(cluster)
    lived = set()
    for line in LIFE.strip().splitlines():
        command, hook, before, after = words(line)
        done = cluster.run(*shlex.split(command))
        assert not done.failed, f"{command}: {done.output}"
        actual = recorder.take()
        ran = {
            phase: "".join(sorted(n for h, p, n in actual if (h, p) == (hook, phase)))
            for phase in ("pre", "post")
        }
        assert ran == {"pre": before, "post": after}, command
        lived.add(hook)
        for (name, phase, _node), env in actual.items():
            if name == "config-update":
                assert env["GANETI_HOOKS_PHASE"] == "post"
            else:
                check_environment(ROWS[name], phase, env, NODES)
    assert len(lived - {""}) >= 29
