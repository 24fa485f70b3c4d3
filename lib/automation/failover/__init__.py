"""The master role moves to this node, with the store in etcd."""
