"""Runs for many tables: scheduler, retries, continuous publishing, ledger, verification, orphaned targets."""
