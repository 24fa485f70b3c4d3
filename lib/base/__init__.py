"""Small helpers by topic, one module each; import the module.

The helpers contain no policy and do not depend on clusters, jobs or nodes; such code
belongs to a higher layer.
"""
