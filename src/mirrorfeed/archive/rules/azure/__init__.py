"""Those of an Azure storage account."""
