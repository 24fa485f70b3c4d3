"""The confd server: answers about the configuration over UDP."""
