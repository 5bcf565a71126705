"""Write rows to data files in the landing zone, under names that Fabric ignores (staged files)."""
