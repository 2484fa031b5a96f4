"""The atomic tools, one file a capability."""
