"""The memory that outlives a session: files that agents read on demand, and write only with proof.

`store` is the one path on which anything is written; `gad.core.gate` says what may be.
"""
