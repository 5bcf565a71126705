"""Runs over many tables: scheduler, retries, continuous publishing, ledger, verification, orphaned targets."""
