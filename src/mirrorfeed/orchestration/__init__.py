"""Runs over many tables: scheduler, retries, following, ledger, verification, orphans."""
