"""Node calls about membership: roles, terms, copies of the store, shared files."""
