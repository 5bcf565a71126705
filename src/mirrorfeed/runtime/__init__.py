"""The process's environment: Spark session, Databricks, logins, server addresses, version."""
