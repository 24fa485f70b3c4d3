"""Consoles of this node's guests, relayed to viewers: tickets, and who watches what."""
