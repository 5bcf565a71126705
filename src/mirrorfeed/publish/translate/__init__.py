"""Translates rows of the change data feed to landing rows, in SQL."""
