"""The landing-zone format: names, columns, selections, records. Pure: no Spark, storage or network."""
