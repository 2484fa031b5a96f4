"""The pure core: no clock, no files, no threads, no event loop. Everything here is a value or a fold."""
