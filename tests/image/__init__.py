"""The image, built for real on a base made from Debian's packages, and started as a cluster would start it."""
