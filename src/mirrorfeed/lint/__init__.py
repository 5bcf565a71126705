"""Check the landing zone of any publisher: readers, rules, findings."""
