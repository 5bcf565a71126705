"""Tables with archived files: queries that need an archived file fail before anything is read."""
