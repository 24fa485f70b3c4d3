"""The constraints: which instance may be on which node, and which move is allowed.

Here: policies, capacity limits, tags and roles, for one instance or for arrays of
moves. Not here: global N+1 (``n1``) and the score of a placement (``score``).
"""
