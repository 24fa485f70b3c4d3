"""Plans for the work on nodes: rolling reboots, and switching nodes off and on.

Source: the manual pages of ``hroller`` and ``hsqueeze``.
"""
