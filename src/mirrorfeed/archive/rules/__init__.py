"""The lifecycle rules of the cloud: judged for a table, and written into the one policy that it shares."""
