"""Units that verify the cluster, and the requests and output that they share."""
