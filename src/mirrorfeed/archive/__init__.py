"""Tables whose old files are in an archive tier: what needs them, what does not, and how they come back."""
