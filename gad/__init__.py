"""gad: a daemon that runs LLM agent sessions through a directory."""

__version__ = "0.1.0"
