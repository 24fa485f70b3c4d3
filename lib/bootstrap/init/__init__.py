"""Creation of a cluster: checks of the machine, first configuration, files."""
