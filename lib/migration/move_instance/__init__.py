"""``move-instance``: move instances between clusters, by the remote APIs of both."""
