"""Global N+1: whether the instances of any one lost node fit on other nodes.

``check`` gives the verdict. ``slot_count`` decides most cases by counting, and
``simulate`` follows the evacuation of a lost node where counting leaves it open. The
mathematics is explained in doc/placement.rst.
"""
