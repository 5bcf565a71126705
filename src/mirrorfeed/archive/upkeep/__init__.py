"""The care of a table with an archive: its maintenance, how much of it is archived, what another interval would do."""
