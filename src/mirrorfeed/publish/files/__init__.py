"""Write rows to data files, and upload the files under staged names, which Fabric ignores."""
