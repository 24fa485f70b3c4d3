"""The monitoring agent of a node: collectors, their reports, and HTTP answers.

Collectors read `ganeti.node.collectors.sources.Sources`, whose reads that need root go
to a small process of its own (`ganeti.node.collectors.helper`); the daemon itself has
an ordinary user. Whoever runs the daemon, and decides what a report means, does not
belong here. The reports and paths are those of Ganeti's monitoring agent, see
ganeti-mond(8).
"""
