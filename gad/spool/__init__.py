"""The only code that reads and writes spool/: names, claims, status, journal, watch."""
