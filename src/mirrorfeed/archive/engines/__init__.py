"""Access to tables with archived files, on Databricks and with open source Delta."""
