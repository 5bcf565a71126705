"""Where changes come from: the change data feed, and sources without a usable feed."""
