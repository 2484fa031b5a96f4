"""The plugins that ship with gad. They are plugins like any other: `triggers/NAME.py` takes the place of one."""
