"""The placement programs: they read files and daemons, print, and submit.

What they decide is computed by ``ganeti.htools``.
"""
