"""The format of the landing zone. Pure: no Spark, storage or network."""
