"""Calls of every method of the remote API's client, and a driver that makes them.

As a program it reads ``{"port", "calls", "options"}`` from each line of its input and
prints a list of one outcome per call. It imports ``ganeti.rapi.client`` alone, so the client of another
release can be driven too.
"""

import json
import logging
import sys

#: Calls with the arguments that scripts give: method, positional, by name.
CALLS = (
    *(("GetVersion",), ("GetFeatures",), ("GetInfo",), ("GetOperatingSystems",)),
    ("GetInfo", [], {"reason": "why not & more"}),
    ("RedistributeConfig",),
    ("ModifyCluster", [], {"reason": "r", "maintain_node_health": False}),
    ("GetClusterTags",),
    ("AddClusterTags", [["a", "b c"]], {"dry_run": True, "reason": "r"}),
    ("DeleteClusterTags", [["a"]]),
    ("GetInstances",),
    ("GetInstances", [], {"bulk": True, "reason": "r"}),
    ("GetInstance", ["web1.example.com"]),
    ("GetInstanceInfo", ["web1"]),
    ("GetInstanceInfo", ["web1"], {"static": True}),
    ("GetInstanceInfo", ["web1"], {"static": False, "reason": "r"}),
    ("GetInstanceConsole", ["web1"]),
    ("InstanceAllocation", ["create", "web1", "plain", [{"size": 1}], [{}]], {"os": "a"}),
    ("InstancesMultiAlloc", [[{"name": "web1"}]], {"iallocator": "hail", "reason": "r"}),
    ("InstancesMultiAlloc", [[]], {"dry_run": True}),
    ("CreateInstance", ["create", "web1", "drbd", [{"size": 1024}], [{}]], {"os": "a", "pnode": "n1", "dry_run": True, "reason": "r"}),
    ("CreateInstance", ["create", "web1", "diskless", [], []], {"start": False}),
    ("DeleteInstance", ["web1"]),
    ("DeleteInstance", ["web1"], {"dry_run": True, "shutdown_timeout": 5}),
    ("ModifyInstance", ["web1"], {"hvparams": {"a": 1}, "reason": "r"}),
    ("ActivateInstanceDisks", ["web1"]),
    ("ActivateInstanceDisks", ["web1"], {"ignore_size": True}),
    ("DeactivateInstanceDisks", ["web1"]),
    ("DeactivateInstanceDisks", ["web1"], {"force": True}),
    ("RecreateInstanceDisks", ["web1"]),
    ("RecreateInstanceDisks", ["web1"], {"disks": [0, [1, {"spindles": 2}]], "nodes": ["n1"], "iallocator": "hail"}),
    ("GrowInstanceDisk", ["web1", 1, 512]),
    ("GrowInstanceDisk", ["web1", 0, 512], {"wait_for_sync": False}),
    ("GetInstanceTags", ["web1"]),
    ("AddInstanceTags", ["web1", ["a", "b"]], {"reason": "r"}),
    ("DeleteInstanceTags", ["web1", ["a"]], {"dry_run": True}),
    ("RebootInstance", ["web1"]),
    ("RebootInstance", ["web1"], {"reboot_type": "soft", "ignore_secondaries": True, "dry_run": True, "shutdown_timeout": 3}),
    ("RebootInstance", ["web1"], {"ignore_secondaries": False}),
    ("ShutdownInstance", ["web1"]),
    ("ShutdownInstance", ["web1"], {"dry_run": True, "no_remember": True, "timeout": 9}),
    ("StartupInstance", ["web1"]),
    ("StartupInstance", ["web1"], {"dry_run": True, "no_remember": True, "reason": "r"}),
    ("ReinstallInstance", ["web1"]),
    ("ReinstallInstance", ["web1"], {"os": "b", "no_startup": True, "osparams": {"x": "y"}}),
    ("ReplaceInstanceDisks", ["web1"]),
    ("ReplaceInstanceDisks", ["web1"], {"disks": [0, 2], "mode": "replace_on_primary", "early_release": True}),
    ("ReplaceInstanceDisks", ["web1"], {"mode": "replace_new_secondary", "remote_node": "n2", "reason": "r"}),
    ("ReplaceInstanceDisks", ["web1"], {"iallocator": "hail"}),
    ("PrepareExport", ["web1", "remote"]),
    ("ExportInstance", ["web1", "local", "n2"]),
    ("ExportInstance", ["web1", "remote", [["h", 1]]], {"shutdown": True, "remove_instance": False, "x509_key_name": ["k", "d", "s"], "destination_x509_ca": "PEM", "compress": "none"}),
    ("MigrateInstance", ["web1"]),
    ("MigrateInstance", ["web1"], {"mode": "live", "cleanup": True, "target_node": "n3"}),
    ("FailoverInstance", ["web1"]),
    ("FailoverInstance", ["web1"], {"iallocator": "hail", "ignore_consistency": True, "target_node": "n3"}),
    ("RenameInstance", ["web1", "web2"]),
    ("RenameInstance", ["web1", "web2"], {"ip_check": True, "name_check": False}),
    ("GetJobs",),
    ("GetJobs", [], {"bulk": True}),
    ("GetJobStatus", [17]),
    ("GetJobStatus", ["17"]),
    ("WaitForJobCompletion", [17], {"period": 0}),
    ("WaitForJobCompletion", [18], {"period": 0}),
    ("WaitForJobCompletion", [19], {"period": 0, "retries": 2}),
    ("WaitForJobChange", [17, ["status"], None, None]),
    ("WaitForJobChange", [17, ["status"], ["queued"], 3]),
    ("CancelJob", [17]),
    ("CancelJob", [17], {"dry_run": True}),
    ("GetNodes",),
    ("GetNodes", [], {"bulk": True}),
    ("GetNode", ["n1"]),
    ("EvacuateNode", ["n1"], {"iallocator": "hail", "dry_run": True, "early_release": True, "mode": "all"}),
    ("EvacuateNode", ["n1"], {"remote_node": "n2", "mode": "secondary-only", "reason": "r"}),
    ("EvacuateNode", ["n1"], {"remote_node": "n2", "iallocator": "hail"}),
    ("MigrateNode", ["n1"]),
    ("MigrateNode", ["n1"], {"mode": "non-live", "dry_run": True, "iallocator": "hail", "target_node": "n2"}),
    ("GetNodeRole", ["n1"]),
    ("SetNodeRole", ["n1", "offline"]),
    ("SetNodeRole", ["n1", "regular"], {"force": True, "auto_promote": True}),
    ("PowercycleNode", ["n1"]),
    ("PowercycleNode", ["n1"], {"force": True}),
    ("ModifyNode", ["n1"], {"drained": True}),
    ("GetNodeStorageUnits", ["n1", "lvm-pv", "name,size"]),
    ("ModifyNodeStorageUnits", ["n1", "lvm-pv", "/dev/sda"]),
    ("ModifyNodeStorageUnits", ["n1", "lvm-pv", "/dev/sda"], {"allocatable": False}),
    ("RepairNodeStorageUnits", ["n1", "lvm-vg", "xenvg"], {"reason": "r"}),
    ("GetNodeTags", ["n1"]),
    ("AddNodeTags", ["n1", ["a"]]),
    ("DeleteNodeTags", ["n1", ["a"]]),
    ("GetNetworks",),
    ("GetNetworks", [], {"bulk": True}),
    ("GetNetwork", ["net1"]),
    ("CreateNetwork", ["net1", "192.0.2.0/24"]),
    ("CreateNetwork", ["net1", "192.0.2.0/24"], {"gateway": "192.0.2.1", "network6": "2001:db8::/64", "gateway6": "2001:db8::1", "mac_prefix": "aa:00:01", "add_reserved_ips": "192.0.2.8,192.0.2.9", "tags": "a,b", "dry_run": True}),
    ("ConnectNetwork", ["net1", "g1", "bridged", "br0"]),
    ("ConnectNetwork", ["net1", "g1", "openvswitch", "br0", "4"], {"dry_run": True}),
    ("DisconnectNetwork", ["net1", "g1"]),
    ("ModifyNetwork", ["net1"], {"gateway": "192.0.2.2"}),
    ("RenameNetwork", ["net1", "net2"]),
    ("DeleteNetwork", ["net1"]),
    ("GetNetworkTags", ["net1"]),
    ("AddNetworkTags", ["net1", ["a"]]),
    ("DeleteNetworkTags", ["net1", ["a"]]),
    ("GetGroups",),
    ("GetGroups", [], {"bulk": True}),
    ("GetGroup", ["g1"]),
    ("CreateGroup", ["g1"]),
    ("CreateGroup", ["g1"], {"alloc_policy": "preferred", "dry_run": True}),
    ("ModifyGroup", ["g1"], {"alloc_policy": "last_resort"}),
    ("DeleteGroup", ["g1"]),
    ("RenameGroup", ["g1", "g2"]),
    ("AssignGroupNodes", ["g1", ["n1", "n2"]]),
    ("AssignGroupNodes", ["g1", ["n1"]], {"force": True, "dry_run": True}),
    ("GetGroupTags", ["g1"]),
    ("AddGroupTags", ["g1", ["a"]]),
    ("DeleteGroupTags", ["g1", ["a"]]),
    ("Query", ["node", ["name"]]),
    ("Query", ["instance", ["name"], ["=", "name", "web1"]], {"reason": "r"}),
    ("QueryFields", ["node"]),
    ("QueryFields", ["node", ["name", "role"]]),
    ("GetFilters",),
    ("GetFilters", [], {"bulk": True}),
    ("GetFilter", ["f0-0"]),
    ("AddFilter", [1, [["jobid", [">", "id", 0]]], "ACCEPT"]),
    ("AddFilter", [1, [], "ACCEPT", [["me", "text", 1]]]),
    ("ReplaceFilter", ["f0-0", 1, [], "REJECT"]),
    ("DeleteFilter", ["f0-0"]),
)  # fmt: skip
#: Calls that degrade or fail if the server has no features.
WITHOUT_FEATURES = (
    ("GetFeatures",),
    ("CreateInstance", ["create", "web1", "diskless", [], []]),
    ("ReinstallInstance", ["web1"], {"os": "b", "no_startup": True}),
    ("ReinstallInstance", ["web1"], {"osparams": {"x": "y"}}),
    ("MigrateNode", ["n1"], {"mode": "live", "dry_run": True}),
    ("MigrateNode", ["n1"], {"target_node": "n2"}),
    ("EvacuateNode", ["n1"], {"remote_node": "n2"}),
    ("EvacuateNode", ["n1"], {"remote_node": "n2", "accept_old": True, "early_release": True}),
    ("EvacuateNode", ["n1"], {"iallocator": "hail", "accept_old": True, "dry_run": True}),
    ("EvacuateNode", ["n1"], {"iallocator": "hail", "accept_old": True, "mode": "all"}),
)  # fmt: skip


def drive(module, port, calls, options):
    """Return the outcome of each call: its value, or class and code of its error.

    Args:
        module: ``ganeti.rapi.client``.
        port: of the server.
        calls: see `CALLS`.
        options: ``config`` for `GenericCurlConfig`, and arguments of the class.
    """
    options = dict(options)
    config = options.pop("config", None)
    if config is not None:
        options["curl_config_fn"] = module.GenericCurlConfig(**config)
    logger = logging.getLogger("rapi-client")
    client = module.GanetiRapiClient("127.0.0.1", port, logger=logger, **options)
    outcomes = []
    for name, *rest in calls:
        args = rest[0] if rest else []
        kwargs = rest[1] if len(rest) > 1 else {}
        try:
            outcomes.append(["ok", getattr(client, name)(*args, **kwargs)])
        except module.Error as err:
            outcomes.append([type(err).__name__, getattr(err, "code", None), str(err)])
        except Exception as err:  # noqa: BLE001
            outcomes.append([type(err).__name__, None, ""])
    return outcomes


def main():
    from ganeti.rapi import client

    for line in sys.stdin:
        given = json.loads(line)
        outcomes = drive(client, given["port"], given["calls"], given["options"])
        print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main()
