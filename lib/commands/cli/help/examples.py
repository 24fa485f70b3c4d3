"""Examples of the gnt-* commands for their help and their manual pages.

The text below is read by `of`: a call as typed into a shell, then its purpose. Each
command has its examples in the order in which the help shows them.
"""

from typing import Final


def of(program: str, command: str) -> list[tuple[str, str]]:
    """Return the examples of a command: a call and its purpose."""
    lines = _EXAMPLES.splitlines()
    return [
        (line, text.strip())
        for line, text in zip(lines[::2], lines[1::2], strict=True)
        if line.split()[:2] == [program, command]
    ]


_EXAMPLES: Final = """\
gnt-cluster init --enabled-hypervisors=kvm --enabled-disk-templates=file,diskless \
cluster1.example.com
    a cluster for KVM with disks in files, without LVM
gnt-cluster init --enabled-hypervisors=kvm --enabled-disk-templates=sharedfile \
--master-netdev=eth0 -I hail cluster1.example.com
    disks on a shared file system, master IP address on eth0, nodes chosen by hail
gnt-cluster balance
    only show the moves that balance the cluster
gnt-cluster balance --explain -g default
    the same for one group, with the gain of each move and why there are no more
gnt-cluster balance --apply --max-moves=5 --no-disk-moves --yes
    apply up to five moves that copy no disks
gnt-cluster balance --apply --evac-mode
    empty all offline and drained nodes
gnt-cluster epo --all
    stop everything but the master
gnt-cluster epo --groups rack1
    only the nodes of one group
gnt-cluster epo --become-master node1
    on another candidate: take the master role, and switch the old master off
gnt-cluster epo --on --all
    bring everything back
gnt-cluster info
    all settings
gnt-cluster info --json
    all settings as JSON
gnt-cluster status
    one screen: what is wrong, and what to do; exit code 0, 1 or 2
gnt-cluster verify
    check everything
gnt-cluster verify --error-codes
    one error per line, for programs
gnt-cluster verify -g default
    one node group only
gnt-cluster modify -I hail
    let hail choose the nodes of new instances by default
gnt-cluster modify -B maxmem=1g,minmem=512m
    default memory of instances
gnt-cluster modify -H kvm:kernel_path=,serial_console=true
    boot guests with their own boot loader
gnt-cluster modify --enabled-disk-templates file,sharedfile
    allow these disk templates
gnt-cluster freeze network of rack 2 is being rebuilt
    keep all programs from acting by themselves, for a reason
gnt-cluster thaw
    let programs act by themselves again
gnt-cluster journal --since 2h
    show what the watcher, repairs and the maintenance daemon have done since
gnt-cluster journal --instance web1.example.com
    show why an instance was restarted, repaired or left alone
gnt-cluster journal --follow
    watch the decisions
gnt-cluster monitor
    print every change, job and decision as it happens
gnt-cluster monitor --type job,node-death --json
    the same of jobs and silent nodes, for a program
gnt-cluster audit -n 20
    show the newest changes and who made them
gnt-cluster audit --verify
    check that the log is whole
gnt-cluster simulate --event 'kill node7.example.com'
    show what the death of a node would lead to within two hours
gnt-cluster simulate --event '10m drain node7.example.com yes' --policy repair=migrate
    show which instances would be moved if the cluster permitted that
gnt-cluster simulate --event 'kill node7.example.com' --policy \
node-death=yes,moved-share=10 --horizon 1d --json
    with other settings of automation, for programs
gnt-cluster sessions list
    show who is signed in to the remote API
gnt-cluster sessions --user jack revoke
    sign a user out everywhere, at once
gnt-cluster list-incidents
    show which nodes wait for a repair
gnt-cluster list-incidents --json
    the same for programs, with the whole reports of the nodes
gnt-cluster maintd-cancel 6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11
    leave a node as it is although it reports a fault
gnt-cluster remove-repair 6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11
    begin again with a fault
gnt-cluster queue drain
    refuse new jobs
gnt-cluster queue undrain
    accept new jobs again
gnt-cluster queue info
    show whether the queue is drained
gnt-cluster watcher pause 2h
    pause the watcher during maintenance
gnt-cluster watcher continue
    end the pause now
gnt-cluster command -g default uptime
    run uptime on all nodes of a group
gnt-cluster command -n node2 df -h /
    on one node
gnt-cluster copyfile -n node2 /etc/hosts
    copy a file to the same path on node2
gnt-cluster master-failover
    on a master candidate, after the failure of the master
gnt-cluster master-failover --no-voting
    if most other nodes are dead too
gnt-cluster master-failover --accept-loss
    when most copies of the configuration are lost for good
gnt-cluster lost-changes
    after a failover with --accept-loss
gnt-cluster master-ping
    exit code 0 means that the master answers
gnt-cluster rename cluster2.example.com
    change name and address of the cluster
gnt-cluster search 192.0.2.17
    find the object with this address
gnt-cluster search-tags ^env:
    find all objects with a tag that begins with env:
gnt-cluster add-tags env:test
    tag the cluster
gnt-cluster redist-conf
    after the loss of files on nodes
gnt-cluster upgrade --plan --to 3.1.2
    show what would be done
gnt-cluster upgrade --to 3.1.2
    change to an installed release
gnt-cluster upgrade --resume
    after an interruption
gnt-cluster verify-disks
    activate disks that are inactive after a node's reboot
gnt-cluster renew-crypto --new-node-certificates
    new certificates for all node daemons
gnt-cluster destroy --yes-do-it
    remove a cluster that consists of its master only
gnt-node add node2.example.com
    add a machine; asks to confirm its host key
gnt-node add --readd node2
    add it again after a repair
gnt-node add -s 192.0.2.12 -g rack2 node4.example.com
    with an address for replication, in another node group
gnt-node list
    names, disk, memory, instances
gnt-node list -o name,mfree,dfree,role
    free memory and disk space
gnt-node list --no-headers --separator=: -o +group
    output for scripts
gnt-node list -F 'not offline and mfree > 1024'
    only nodes that match a filter
gnt-node info node2
    state and parameters of a node
gnt-node modify -O yes node2
    node2 is dead: do not contact it any more
gnt-node modify -O no node2
    node2 is repaired
gnt-node modify -D yes node2
    place no new instances on it
gnt-node modify --node-parameters spindle_count=4 node2
    change a node parameter
gnt-node evacuate -f -p node2
    primary instances move to nodes that the default allocator chooses
gnt-node evacuate -f -s -n node3 node2
    mirrors move to node3
gnt-node failover -f node2
    start the instances of a dead node elsewhere
gnt-node migrate -f node2
    move running instances away without interruption
gnt-node remove node4
    remove a node without instances
gnt-node power status
    power state of all nodes with an out-of-band helper
gnt-node power -f off node2
    mark it offline and switch it off
gnt-node powercycle -f node2
    reset a node that does not respond
gnt-node health node2
    health of its hardware
gnt-node list-drbd node2
    minors of its kernel, with the disks that use them
gnt-node list-storage -t file
    file storage directories with their free space
gnt-node modify-storage --allocatable no node2 lvm-pv /dev/sdc
    place nothing new on a disk that shows errors
gnt-node repair-storage node2 lvm-vg xenvg
    take missing disks out of a volume group, with their volumes
gnt-node volumes node2
    logical volumes, with the instances that use them
gnt-node restricted-command -M lsblk node2
    run an approved command
gnt-node add-tags node2 rack:7
    tag a node
gnt-group add --alloc-policy=last_resort rack2
    a group that is only used when the others are full
gnt-group assign-nodes rack2 node3 node4
    move nodes into a group
gnt-group list
    all groups
gnt-group list -o name,node_list,pinst_list
    nodes and instances of all groups
gnt-group info default
    parameters of a group, with inherited values marked
gnt-group modify --alloc-policy=unallocable rack2
    place no new instances in a group
gnt-group modify --node-parameters ssh_port=2222 rack2
    set a parameter for all nodes of a group
gnt-group evacuate --to default rack2
    move all instances out of a group
gnt-group rename rack2 hall2
    change the name of a group
gnt-group remove rack2
    remove an empty group
gnt-instance add -t file -s 2g -o tiny+default -n node2 web1.example.com
    one disk of 2 GiB in a file on node2
gnt-instance add -t sharedfile -s 2g -o tiny+default -I hail --dry-run --explain \
web3.example.com
    show which node hail would choose, and why not others
gnt-instance add -t sharedfile --disk 0:size=2g --disk 1:size=10g,name=data -o \
tiny+default -B maxmem=1g,vcpus=2 -H kvm:serial_console=true web2.example.com
    the default allocator chooses the node
gnt-instance add -t diskless -o tiny+default --no-nics --no-install --no-start -n \
node1 test1.example.com
    no disks, no network, not started
gnt-instance add --forthcoming -t file -s 20g -B maxmem=4g --expires 7d --owner web-team
    only reserve the resources; prints the uuid
gnt-instance add --commit -o tiny+default web4.example.com
    create the instance whose resources are reserved
gnt-instance list
    all instances
gnt-instance list -o name,pnode,status,oper_ram
    chosen columns
gnt-instance list -o +tags,disk.sizes web1 web2
    more columns for some instances
gnt-instance list -F 'pnode == "node2" and status != "running"'
    by a filter
gnt-instance info web1
    configuration and present state
gnt-instance info -s --all
    configuration of all instances; no node is called
gnt-instance startup web1 web2
    start two instances
gnt-instance startup --force-multiple --node node2
    start all instances with primary or secondary node node2
gnt-instance startup -H kernel_args=single web1
    start with a kernel argument for this start only
gnt-instance shutdown web1
    shut down the guest, and stop it after two minutes at the latest
gnt-instance shutdown --timeout 0 web1
    stop it immediately
gnt-instance shutdown --all --force-multiple
    everything
gnt-instance reboot web1
    reboot from inside the guest
gnt-instance reboot -t full web1
    stop and start, to apply new settings
gnt-instance console web1
    leave a KVM console with Ctrl-]
gnt-instance console --show-cmd web1
    only print the command
gnt-instance modify -B maxmem=2g web1
    change the memory from the next start on
gnt-instance modify --disk add:size=5g,name=logs web1
    add a disk
gnt-instance modify --net 0:ip=192.0.2.7 web1
    change the address of the first NIC
gnt-instance modify --offline web1
    mark as not intended to run; --online removes the mark
gnt-instance modify -t drbd -n node3 web1
    mirror the volumes of a stopped instance on node3
gnt-instance migrate -f web1
    to its secondary node, or to one that the default allocator chooses
gnt-instance migrate -f -n node3 web1
    to node3, for shared storage
gnt-instance migrate --cleanup web1
    clean up after an interrupted migration
gnt-instance failover -f -n node3 web1
    stop, then start on node3
gnt-instance failover --ignore-consistency web1
    after the failure of its primary node; asks twice
gnt-instance move -f -n node3 web1
    copy its disks to node3
gnt-instance remove web1
    asks first
gnt-instance remove -f --shutdown-timeout=0 web1
    without a question or a wait for the guest
gnt-instance reinstall -o tiny+quiet web1
    install another system; all data on the first disk is lost
gnt-instance reinstall --select-os web1
    choose the system from a list
gnt-instance reinstall --os-parameters-secret @/root/web1.secrets web1
    with secret parameters from a file, one key=value per line
gnt-instance rename web1 www.example.com
    it must be stopped
gnt-instance grow-disk web1 0 1g
    add 1 GiB to its first disk
gnt-instance grow-disk --absolute web1 0 8g
    enlarge it to 8 GiB
gnt-instance recreate-disks web1
    replace lost disks by empty ones
gnt-instance recreate-disks --disk 1 web1
    replace only the lost second disk
gnt-instance activate-disks web1
    assemble the disks of a stopped instance for inspection
gnt-instance deactivate-disks web1
    afterwards
gnt-instance replace-disks -n node4 web1
    choose a new secondary node for a mirrored instance
gnt-instance batch-create instances.json
    the file has a JSON list of objects with OP_INSTANCE_CREATE parameters
gnt-instance change-group --to rack2 web1
    move it to another node group
gnt-instance add-tags web1 env:test owner:ada
    add two tags
gnt-network add --network=192.0.2.0/24 --gateway=192.0.2.1 lan
    a network; its first and last address and the gateway are reserved
gnt-network add --network=198.51.100.0/24 \
--add-reserved-ips=198.51.100.10,198.51.100.11 --mac-prefix=aa:bb:cc dmz
    keep two addresses from instances, and use a prefix of MAC addresses
gnt-network connect -N mode=bridged,link=br0 lan
    let instances of all node groups use a network
gnt-network connect -N mode=openvswitch,link=switch1,vlan=100 dmz rack2
    connect it to one node group, in VLAN 100 of a switch
gnt-network connect -N mode=routed,link=100 dmz rack3
    route its addresses to the guests, in routing table 100
gnt-network disconnect dmz rack2
    end the use of a network in a node group
gnt-network info lan
    a map of its addresses, and its users
gnt-network list
    all networks
gnt-network list -o name,free_count,inst_list
    free addresses and instances of all networks
gnt-network modify --add-reserved-ips=192.0.2.20 lan
    keep an address from instances
gnt-network modify --gateway=none lan
    remove the gateway
gnt-network rename lan office
    change the name
gnt-network remove lan
    remove a network that no group uses
gnt-os list
    names for the option -o of gnt-instance add
gnt-os diagnose
    show why an OS is not in the list
gnt-os info tiny
    variants and parameters of an OS
gnt-os modify --hidden yes tiny
    omit an OS from the list
gnt-os modify -O motd=hello tiny
    set a default parameter for all its instances
gnt-storage diagnose
    show why a provider cannot be used
gnt-storage info shelf
    node groups and parameters of a provider
gnt-job list
    all jobs that are not archived
gnt-job list --running
    jobs that run now
gnt-job list --error -o id,summary,opresult
    failed jobs with their errors
gnt-job list --pending 12 13
    those of two jobs that have not started
gnt-job info 12
    opcodes, results, messages, times
gnt-job watch 12
    print its messages until it ends
gnt-job wait 12
    wait for a job in scripts, after --submit
gnt-job cancel 12 13
    cancel jobs that have not begun
gnt-job cancel -f --queued
    cancel all jobs that wait in the queue
gnt-job cancel --kill --yes-do-it 12
    kill a running job; its changes so far remain
gnt-job change-priority --priority high 14
    run a job before others
gnt-job archive 12
    archive a finished job
gnt-job autoarchive 1d
    archive all jobs that ended more than a day ago
gnt-debug locks
    holders of locks, and jobs that wait
gnt-debug locks -o name,mode,owner --interval 2
    repeat every two seconds
gnt-debug delay 5
    a job that sleeps
gnt-debug delay -n node2 --no-master 5
    sleep on node2 only
gnt-debug submit-job ops.json
    a list of opcodes as one job
gnt-debug iallocator --disks 1g --mode allocate --dir in -o tiny --memory 128m new1
    print the request to an allocator
gnt-filter add --action PAUSE --priority 0 --reason maintenance
    start no more jobs
gnt-filter add --action REJECT --predicates '[["opcode", ["=", "OP_ID", \
"OP_INSTANCE_CREATE"]]]'
    refuse jobs that create instances
gnt-filter add --action 'RATE_LIMIT 2' --predicates '[["opcode", ["=", "OP_ID", \
"OP_INSTANCE_MIGRATE"]]]'
    run at most two migrations at a time
gnt-filter list
    all rules
gnt-filter list --json -o predicates,action
    predicates in the form that the command add accepts
gnt-filter info
    all rules, one value per line
gnt-filter delete 8b53f7de-f8e2-4470-99bd-1efe746e434f
    delete a rule
gnt-filter replace --priority 5 --action ACCEPT 8b53f7de-f8e2-4470-99bd-1efe746e434f
    replace a rule under the same UUID
gnt-backup export -n node2.example.com web1.example.com
    stop the instance, take snapshots, start it again, copy to node2
gnt-backup export --noshutdown -n node2.example.com web1.example.com
    take the snapshots while the instance runs
gnt-backup export --long-sleep -n node2.example.com files.example.com
    an instance whose disks have no snapshots
gnt-backup import -n node1.example.com web1.example.com
    bring the instance back as it was
gnt-backup import -n node1.example.com --src-dir web1.example.com --net 0:mac=generate \
web2.example.com
    a copy under another name
gnt-backup list
    the exports of all nodes
gnt-backup list --no-headers -o export -n node2.example.com
    the names of the exports of one node
gnt-backup remove web1.example.com
    remove it from all nodes
gnt-rapi-token add --rights read --expires 90d dashboard
    a token of a program that only reads
gnt-rapi-token add --rights 'write:/2/instances/web-*' deploy
    a token that may change some instances
gnt-rapi-token add --replace deploy
    a new token with the rights of the old one, which is valid no longer
gnt-rapi-token list --json
    everybody, for a program
gnt-rapi-token password --rights write jack
    a user whose password is asked for
gnt-rapi-token remove deploy
    withdraw a token at once
gnt-rapi-token remove --expired
    tidy up
"""
