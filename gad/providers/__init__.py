"""Models that can be asked, one module a wire format.

Each provider module imports its vendor's SDK at its top, which costs 0.3 to 1.2 s: import the module only
when a model is about to be asked. `stream` holds the loop they share, `failures` how trouble becomes one of
`gad.errors`, `wire` what the formats have in common when a transcript is written out.
"""
