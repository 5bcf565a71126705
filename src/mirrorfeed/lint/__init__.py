"""Checks the landing zone of any publisher."""
