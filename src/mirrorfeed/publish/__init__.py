"""Publish one table: decide what to publish, write staged files, add a record to the log, and rename the files."""
