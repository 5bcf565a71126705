"""The commands `status`, `doctor`, `check-alerts` and `report`, and the checks that they share."""
