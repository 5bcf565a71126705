"""What a question needs of the archive: planned, priced, asked for and waited for."""
