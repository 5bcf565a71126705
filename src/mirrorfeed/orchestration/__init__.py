"""Many tables: runs, the scheduler, retries, following, the ledger, orphans."""
