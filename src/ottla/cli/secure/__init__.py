"""`ottla secure`: a secured cluster from nothing, its users and tenants, and what is wrong with it."""
