"""A node's own work: node calls, hypervisors, disks and collectors.

Nothing here knows the whole cluster; the master sends each node what it needs.
"""
