"""Plans for node maintenance: rolling reboots, and switching nodes off and on.

Source: the manual pages of ``hroller`` and ``hsqueeze``.
"""
