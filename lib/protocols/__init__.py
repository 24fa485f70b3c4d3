"""One wire or file format per package, both ends, without policy.

The server of a request knows what it means, and its caller when to send it.
"""
