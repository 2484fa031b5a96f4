"""Triggers: small programs that hand in sessions by themselves, each in a process of its own.

`Host` runs them beside the daemon. A trigger is a client of the spool like any other: nothing in the daemon knows of
it. What a plugin sees is `plugin.Trigger`; `files`, `logs`, `batch` and `activity` are there for plugins to import.
"""
