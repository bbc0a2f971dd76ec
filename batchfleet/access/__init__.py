"""Who may ask: API keys with roles, the tenants they belong to, and where a tenant's objects may lie.

Reading order: `keys` and `tenants` (values, pure), `store` (the port), then `tables` and `sql` (the adapter).
"""
