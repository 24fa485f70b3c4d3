"""A long session of somebody with old habits: half of what is typed is wrong.

Every line has its exit code and a text that the output must hold; whatever happens
there is no traceback, and in the end the cluster is clean.
"""

import json
import os
import pty
import select
import shlex
import subprocess
import time

import pytest

pytestmark = pytest.mark.daemon
NEW = "gnt-instance add -H fake -o tiny+default --no-nics"

#: exit code | text of the output | command, in this order
SCRIPT = f"""
0 | node1.vc.test                    | gnt-cluster getmaster
0 | Software version                 | gnt-cluster version
0 | Cluster name: cluster.vc.test    | gnt-cluster info
1 | expects no arguments             | gnt-cluster info more
0 |                                  | gnt-cluster master-ping
1 | Commands:                        | gnt-cluster
1 | unknown command 'explode'        | gnt-cluster explode
0 | Commands:                        | gnt-cluster --help
0 | 3.1.1                            | gnt-cluster --version
2 | no such option                   | gnt-cluster info --bogus
0 | drain flag is unset              | gnt-cluster queue info
1 | wanted drain, undrain or info    | gnt-cluster queue empty
1 | expects 1 argument               | gnt-cluster queue
0 |                                  | gnt-cluster queue drain
1 | marked for drain                 | gnt-debug delay 0
0 | drain flag is set                | gnt-cluster queue info
0 |                                  | gnt-cluster queue undrain
0 | watcher is not paused            | gnt-cluster watcher info
0 | watcher is paused until          | gnt-cluster watcher pause 1h
1 | wanted a number                  | gnt-cluster watcher pause soon
1 | the duration is missing          | gnt-cluster watcher pause
0 | no longer paused                 | gnt-cluster watcher continue
1 | no tags                          | gnt-cluster add-tags
0 |                                  | gnt-cluster add-tags owner:ops blue
1 | invalid characters               | gnt-cluster add-tags 'not a tag!'
0 | owner:ops                        | gnt-cluster list-tags
0 | /cluster owner:ops               | gnt-cluster search-tags ^owner
1 |                                  | gnt-cluster search-tags ^nobody
1 | missing )                        | gnt-cluster search-tags '('
1 | tag(s) not found                 | gnt-cluster remove-tags red
0 |                                  | gnt-cluster remove-tags owner:ops blue
0 | return code = 0                  | gnt-cluster command -n node2 true
1 | No such file                     | gnt-cluster copyfile /no/such/file
0 |                                  | gnt-cluster redist-conf
0 |                                  | gnt-cluster repair-disk-sizes
0 | gnt-cluster init                 | gnt-cluster show-ispecs-cmd
1 | irreversible                     | gnt-cluster destroy
1 | nothing to change                | gnt-cluster modify
1 | of at least 1                    | gnt-cluster modify -C 0
2 | invalid integer                  | gnt-cluster modify -C many
1 | nonsense                         | gnt-cluster modify -H kvm:nonsense=1
1 | nosuch                           | gnt-cluster modify -B nosuch=1
0 |                                  | gnt-cluster modify -C 10
1 | does not resolve                 | gnt-cluster rename -f bogus..
1 | is the master already            | gnt-cluster master-failover
1 | no terminal                      | gnt-cluster deactivate-master-ip
0 | No disks need to be activated    | gnt-cluster verify-disks
1 | Node group 'none' not known      | gnt-cluster verify-disks -g none
1 | Node group 'none' not known      | gnt-cluster verify -g none
0 | node1.vc.test                    | gnt-node list
14 | Queried for unknown fields nope | gnt-node list -o nope
1 | Node 'node9' not known           | gnt-node list node9
0 | node1.vc.test:M                  | gnt-node list --separator=: -o name,role
0 | "role": "M"                      | gnt-node list --json -o role
2 | invalid choice: 'x'              | gnt-node list --units=x
1 | cannot parse filter              | gnt-node list -F 'role =='
1 | -F needs exactly one filter      | gnt-node list -F
0 | node1.vc.test                    | gnt-node list 'role == "M"'
0 | node3.vc.test                    | gnt-node list 'node*'
0 | Storage size                     | gnt-node list-fields
14 | Unknown                         | gnt-node list-fields nope
0 | Node name: node2.vc.test         | gnt-node info node2
1 | Node 'node9' not known           | gnt-node info node1 node9
1 | Node 'node9' not known           | gnt-node show node9
0 | /srv/ganeti/file-storage         | gnt-node list-storage
0 | file                             | gnt-node list-storage -t file node1
2 | invalid choice: 'tape'           | gnt-node list-storage -t tape
1 | no enabled disk template uses it | gnt-node list-storage -t lvm-vg
1 | unknown fields: nope             | gnt-node list-storage -o nope
0 | Power=OK                         | gnt-node health
0 | powered                          | gnt-node power status node2
1 | no terminal                      | gnt-node power off node2
1 | wanted on, off, cycle, status    | gnt-node power blink node2
2 | no terminal                      | gnt-node powercycle node3
1 | nothing to change                | gnt-node modify node2
1 | Parameter Error                  | gnt-node modify -O perhaps node2
1 | is the master                    | gnt-node modify -O yes node1
0 | offline -> True                  | gnt-node modify -O yes node3
0 | *                                | gnt-node list -o name,mfree node3
1 | no terminal                      | gnt-node modify -O no node3
0 | offline -> False                 | gnt-node modify -f -O no node3
0 | drained -> True                  | gnt-node modify -D yes node3
0 | drained -> False                 | gnt-node modify -D no --auto-promote node3
0 |                                  | gnt-node modify -C yes node3
1 | node parameter bogus             | gnt-node modify --node-parameters=bogus=1 node2
1 | wanted a whole number            | gnt-node modify --node-parameters=ssh_port=x node2
1 | wanted an IPv4 address           | gnt-node modify -s 1.2.3 node2
1 | already in the cluster           | gnt-node add node2
1 | address cannot be found          | gnt-node add no-such-host.invalid
1 | cannot be re-added               | gnt-node add --readd node1
1 | is the master                    | gnt-node remove node1
1 | Node 'node9' not known           | gnt-node remove node9
0 | No primary instances             | gnt-node migrate -f node3
0 | No primary instances             | gnt-node failover -f node3
0 | No instances to evacuate         | gnt-node evacuate -f node3
1 | --primary-only and --secondary-only exclude          | gnt-node evacuate -f -p -s node3
1 | nodes or a node group            | gnt-node restricted-command whoami
0 |                                  | gnt-node add-tags node1 x y
0 | y                                | gnt-node list-tags node1
1 | tag(s) not found: z              | gnt-node remove-tags node1 z
0 |                                  | gnt-node remove-tags node1 x y
0 | default                          | gnt-group list
0 |                                  | gnt-group add rackb
1 | already exists                   | gnt-group add rackb
1 | wanted one of last_resort       | gnt-group add --alloc-policy=odd rackc
0 | Node group: rackb                | gnt-group info rackb
1 | Node group 'none' not known      | gnt-group info none
1 | nothing to change                | gnt-group modify rackb
0 | alloc_policy -> last_resort      | gnt-group modify --alloc-policy=last_resort rackb
2 | invalid floating-point value     | gnt-group modify --ipolicy-vcpu-ratio=x rackb
1 | already exists                   | gnt-group rename rackb default
0 |                                  | gnt-group rename rackb rackd
0 |                                  | gnt-group assign-nodes rackd node3
1 | not empty                        | gnt-group remove rackd
0 | node3.vc.test                    | gnt-group list -o name,node_list
0 |                                  | gnt-group assign-nodes default node3
1 | Node 'node9' not known           | gnt-group assign-nodes default node9
0 | evacuated successfully           | gnt-group evacuate rackd
0 |                                  | gnt-group remove rackd
0 | tiny+default                     | gnt-os list
0 | valid: True                      | gnt-os info tiny
0 | global status: valid             | gnt-os diagnose
1 | nothing to change                | gnt-os modify tiny
1 | unknown parameters size          | gnt-os modify -O size=3 tiny
1 | Parameter Error                  | gnt-os modify --hidden=perhaps tiny
0 | Watermark                        | gnt-filter list
2 | invalid JSON                     | gnt-filter add --predicates=word
1 | wanted one of ACCEPT             | gnt-filter add --action=SLEEP
1 | there is no job filter nope      | gnt-filter info nope
1 | there is no job filter nope      | gnt-filter delete nope
1 | expects 1 argument               | gnt-filter replace
1 | wanted seconds                   | gnt-debug delay soon
2 | no such option: -1               | gnt-debug delay -1
0 |                                  | gnt-debug delay -n node2 0.01
1 | Node 'node9' not known           | gnt-debug delay -n node9 0.01
0 | Name Mode Owner Pending          | gnt-debug locks
1 | No such file                     | gnt-debug submit-job /no/such/file
2 | invalid choice: 'guess'          | gnt-debug iallocator --mode=guess x1
0 | Summary                          | gnt-job list
1 | wanted a number                  | gnt-job list x
0 | not found                        | gnt-job info 99999
1 | is not in the queue              | gnt-job wait 99999
1 | give either job ids or one       | gnt-job cancel
1 | 99999                            | gnt-job cancel 99999
1 | --yes-do-it                      | gnt-job cancel --kill 1
1 | --priority is needed             | gnt-job change-priority 1
1 | '99999'                          | gnt-job archive 99999
1 | wanted a number                  | gnt-job autoarchive later
0 | 0 unchecked left                 | gnt-job autoarchive 1w
0 | Instance                         | gnt-instance list
1 | No instances.                    | gnt-instance info --all
1 | please name instances            | gnt-instance info
1 | expects 1 argument               | gnt-instance add
1 | no disk information              | gnt-instance add x1.vc.test
2 | invalid choice: 'paper'          | gnt-instance add -t paper x1.vc.test
1 | not enabled                      | {NEW} -t plain -s 1g -n node1 x1.vc.test
1 | Node 'node9' not known           | {NEW} -t diskless -n node9 x1.vc.test
1 | cannot have disks                | {NEW} -t diskless -s 1g -n node1 x1.vc.test
2 | wanted a size                    | {NEW} -t file -s big -n node1 x1.vc.test
1 | exclude each other               | {NEW} -t file -s 1g --disk 0:size=1g x1.vc.test
1 | violates the policy              | {NEW} -t diskless -B memory=1t -n node1 x1.vc.test
1 | no-such-allocator                | {NEW} -t diskless -I no-such-allocator x1.vc.test
1 | name must include a variant      | {NEW} -t diskless -n node1 -o tiny x1.vc.test
0 |                                  | {NEW} -t diskless -n node1 --dry-run x1.vc.test
1 | Instance 'x1' not known          | gnt-instance info x1
0 | starting instance                | {NEW} -t diskless -n node1 x1.vc.test
1 | already exists                   | {NEW} -t diskless -n node1 x1.vc.test
0 | is not started                   | {NEW} -t file -s 4m -n node2 --no-install x2.vc.test
0 | running                          | gnt-instance list -o status x1
0 | ADMIN_down                       | gnt-instance list -o status x2
0 | None                             | gnt-instance list -o console x2
1 | is not running                   | gnt-instance console x2
0 | Console not available            | gnt-instance console x1
1 | Instance 'x3' not known          | gnt-instance startup x1 x3
0 | is running already               | gnt-instance start x1
1 | no terminal                      | gnt-instance startup x1 x2
0 | Submitted jobs                   | gnt-instance startup --force-multiple x1 x2
1 | matches no instances             | gnt-instance stop --force-multiple --tags none
2 | invalid choice: 'gentle'         | gnt-instance reboot -t gentle x1
0 | Waiting for job                  | gnt-instance reboot -t hard x1
1 | must be down                     | gnt-instance reinstall -f x2
1 | must be down                     | gnt-instance rename x2 x4.vc.test
1 | its disks are in use             | gnt-instance deactivate-disks x2
1 | must be down                     | gnt-instance recreate-disks x2
0 |                                  | gnt-instance shutdown --submit x2
0 | disk/0                           | gnt-instance activate-disks x2
0 |                                  | gnt-instance deactivate-disks x2
0 | to 8 MiB                         | gnt-instance grow-disk x2 0 4m
1 | shrinking                        | gnt-instance grow-disk --absolute x2 0 4m
1 | has no disk 7                    | gnt-instance grow-disk x2 7 4m
1 | nothing to change                | gnt-instance modify x2
0 | be/vcpus -> 2                    | gnt-instance modify -B vcpus=2 x2
1 | backend parameter colour         | gnt-instance modify -B colour=2 x2
1 | no size given                    | gnt-instance modify --disk add x2
0 | disk/1 -> add                    | gnt-instance modify --disk add:size=4m x2
0 | disk/1 -> remove                 | gnt-instance modify --disk 1:remove x2
0 | admin_state -> offline           | gnt-instance modify --offline x2
1 | is marked offline                | gnt-instance startup x2
0 | admin_state -> down              | gnt-instance modify --online x2
1 | exclude each other               | gnt-instance modify --online --offline x2
1 | unknown parameters nope          | gnt-instance modify -O nope=1 x2
0 | renamed to 'x4.vc.test'          | gnt-instance rename x2 x4.vc.test
1 | keeps its data on one node       | gnt-instance migrate -f -n node3 x4
0 | * done                           | gnt-instance migrate -f -n node3 x1
1 | is already on node node3.vc.test | gnt-instance failover -f -n node3 x1
0 | starting the instance            | gnt-instance failover -f -n node2 x1
1 | no terminal                      | gnt-instance migrate x1
1 | exclude each other               | gnt-instance migrate -f -I a -n node1 x1
1 | There were 1 errors              | gnt-node migrate -f -n node1 node2
0 | starting the instance            | gnt-instance failover -f -n node2 x1
0 |                                  | gnt-instance remove -f x4
0 | migrated successfully            | gnt-node migrate -f -n node1 node2
1 | there is no other group          | gnt-instance change-group x1
1 | No such file                     | gnt-instance batch-create /no/such/file
1 | no terminal                      | gnt-instance remove x1
1 | Instance 'x3' not known          | gnt-instance remove -f x3
0 |                                  | gnt-instance remove -f x1
0 | * Hooks Results                  | gnt-cluster verify
"""


def steps():
    for line in SCRIPT.strip().splitlines():
        code, text, command = (part.strip() for part in line.split("|", 2))
        yield command, int(code), text


def wrong_with(done, code, text):
    """Return what is not as it should be, empty when all is."""
    if "Traceback" in done.output:
        return "a traceback"
    if done.code != code:
        return f"exit code {done.code}, wanted {code}"
    return "" if text in done.output else f"no {text!r}"


def test_two_hundred_commands_do_what_they_should(vcluster):
    problems = []
    count = 0
    for command, code, text in steps():
        count += 1
        done = vcluster.run(*shlex.split(command), timeout_s=120)
        if problem := wrong_with(done, code, text):
            problems.append(f"{command}: {problem}\n{done.output}")
    assert problems == []
    assert count >= 200
    vcluster.wait_until_clean()


@pytest.fixture
def pair(vcluster):
    """Two running instances with a tag; removed afterwards."""
    names = ["p1.vc.test", "p2.vc.test"]
    for name in names:
        command = f"{NEW} -t diskless -n node1 --tags pair {name}"
        vcluster.check(*shlex.split(command))
    yield names
    for name in names:
        vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", name)


def on_terminal(vcluster, command, answers, timeout_s=120.0):
    """Run a command with a terminal of its own; returns exit code and output."""
    master, slave = pty.openpty()
    node = vcluster.master
    argv = ["setsid", "-c", "-w", *vcluster.control.argv(node, shlex.split(command))]
    env = {**os.environ, **vcluster.control.environment(node)}
    child = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    seen = ""
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.2)[0]:
                continue
            try:
                seen += os.read(master, 4096).decode()
            except OSError:  # the last one who had the terminal is gone
                break
            if answers and seen.rstrip().endswith("?:"):
                os.write(master, f"{answers.pop(0)}\n".encode())
        return child.wait(timeout=timeout_s), seen
    finally:
        child.kill()
        child.wait()
        os.close(master)


def states(vcluster, names):
    text = vcluster.check(
        "gnt-instance", "list", "--no-headers", "-o", "status", *names
    )
    return text.split()


def test_several_instances_are_asked_about_on_the_terminal(vcluster, pair):
    code, seen = on_terminal(vcluster, "gnt-instance shutdown --tags pair", ["?", "n"])
    assert code == 1, seen
    assert "The shutdown will operate on 2 instances." in seen
    assert "Affected instances:" in seen
    assert all(name in seen for name in pair)
    assert states(vcluster, pair) == ["running", "running"]
    code, seen = on_terminal(vcluster, "gnt-instance shutdown --tags pair", ["y"])
    assert code == 0, seen
    assert states(vcluster, pair) == ["ADMIN_down", "ADMIN_down"]


def test_one_instance_is_removed_when_the_answer_is_yes(vcluster, pair):
    command = f"gnt-instance remove {pair[0]}"
    assert on_terminal(vcluster, command, ["n"])[0] == 1
    assert states(vcluster, pair) == ["running", "running"]
    assert on_terminal(vcluster, command, ["y"])[0] == 0
    assert vcluster.run("gnt-instance", "info", pair[0]).code == 1


def test_job_options_reach_the_job(vcluster, pair):
    done = vcluster.run(
        *shlex.split("gnt-instance reboot --submit --priority=high --reason=why"),
        pair[0],
    )
    job, _, name = done.stdout.strip().partition(": ")
    assert (done.code, name) == (0, pair[0])
    vcluster.check("gnt-job", "wait", job)
    (row,) = json.loads(
        vcluster.check("gnt-job", "list", "--json", "-o", "status,priority,ops", job)
    )
    (op,) = row["ops"]
    assert (row["status"], op["priority"]) == ("success", -10)
    trail = [entry[:2] for entry in op["reason"]]
    assert ["gnt:user", "why"] in trail
    assert ["gnt:client:gnt-instance", "reboot"] in trail
    done = vcluster.run("gnt-debug", "delay", "--print-jobid", "0.01")
    assert done.stdout.strip().isdigit()
    done = vcluster.run("gnt-debug", "delay", "--submit", "0.01")
    assert (done.code, done.stdout) == (0, "")
    assert done.stderr.startswith("JobID: ")
