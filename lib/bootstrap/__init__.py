"""What happens before there is a master daemon: init, destroy, joining nodes."""
