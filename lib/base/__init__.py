"""Everybody's ground: errors, constants, time, processes, files, addresses, texts.

Nothing here knows clusters, jobs or nodes, or has a policy. One module per topic;
import the module.
"""
