"""The files of a publication: made by Spark or of few rows here, looked at, and sent into the landing zone."""
