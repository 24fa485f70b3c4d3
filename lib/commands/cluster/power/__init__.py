"""``gnt-cluster epo``: nodes switched off and on in an emergency."""
