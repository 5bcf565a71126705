"""Write landing rows to files, and upload the files under staged names."""
