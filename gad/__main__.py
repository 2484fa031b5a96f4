"""`gad` and `python -m gad`."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from gad.cli import gad

    gad(prog_name="gad")


if __name__ == "__main__":
    main()
