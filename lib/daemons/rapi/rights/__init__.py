"""Users of the remote API: who they are, what they may do, how often they may try."""
