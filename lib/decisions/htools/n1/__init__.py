"""Global N+1: whether the instances of any one lost node fit on other nodes.

``check`` gives the verdict about ``failovers`` and, of instances without secondary,
``evacuees``. ``slot_count`` decides most cases of these by counting, and ``simulate``
follows the evacuation of a lost node where counting leaves it open. The mathematics is
explained in doc/placement.rst.
"""
