"""ssconf files: reading for everybody, writing for the node daemon."""
