"""The format of the landing zone: names, columns, rows and log records. Uses no Spark, storage or network."""
