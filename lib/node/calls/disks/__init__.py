"""Node calls about disks: block devices, mirrors, exports and transfers."""
