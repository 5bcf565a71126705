"""Check the landing zone of any publisher against the specification of open mirroring."""
