"""How values are shown."""
