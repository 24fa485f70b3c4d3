"""LUXI, the local JSON protocol: framing, client, server loop; no policy."""
