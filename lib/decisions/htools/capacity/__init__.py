"""Counting capacity: how many more instances fit, where, and why not one more.

The choices are those of ``alloc``, computed for many equal instances in a row.
"""
