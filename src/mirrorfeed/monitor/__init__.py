"""Reports on tables: status, problems and alerts."""
