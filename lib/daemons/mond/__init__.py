"""The monitoring agent of a node: collectors, their reports, and HTTP answers.

Collectors read `ganeti.mond.sources.Sources`, whose reads that need root go to a small
process of its own (`ganeti.mond.helper`); the daemon itself has an ordinary user.
Whoever runs the daemon, and decides what a report means, does not belong here. The
reports and paths are those of Ganeti's monitoring agent, see ganeti-mond(8).
"""
