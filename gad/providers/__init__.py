"""Models behind one socket: each module translates one wire format, and no vendor type leaves it."""
