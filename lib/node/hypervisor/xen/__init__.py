"""Drivers for Xen: paravirtual guests, and guests with full virtualisation.

``driver`` has the operations, which all go through ``xl``: the module ``xl`` runs it
and reads its output, ``config`` makes the configuration file of a guest. ``migration``
moves guests, ``files`` knows their files, also those for the network scripts of NICs.
Specified in the hypervisor document, section 4.
"""
