"""Constants of wire and file formats that more than one side uses."""
