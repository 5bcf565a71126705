"""Where files are: archive tiers and their prices."""
