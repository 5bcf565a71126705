"""From which age on files of a table count as archived: decided purely, and written into its properties."""
