"""Monitor tables: facts, rules, status, doctor, alerts, report."""
