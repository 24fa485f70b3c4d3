"""``gnt-cluster epo``: power nodes off and on, with their instances."""
