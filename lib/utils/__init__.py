"""Small helpers by topic, one module each; import the module.

No policy and no knowledge of clusters, jobs or nodes: whatever needs that belongs
to a layer above.
"""
