"""Publish and verify many tables: scheduler, retries, continuous publishing, reloads, ledger, orphaned targets."""
