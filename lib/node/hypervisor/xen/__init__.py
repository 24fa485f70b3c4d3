"""Drivers for Xen: paravirtual guests, and guests with full virtualisation.

``driver`` has the operations, which all go through ``xl``: the module ``xl`` runs it,
``listing`` reads its output, ``config`` makes the configuration file of a guest.
``nics`` keeps what the network script of a guest's NIC needs, ``migration`` moves
guests, ``files`` knows the places of files, ``checks`` has the conditions. Specified in
the hypervisor document, section 4.
"""
