"""The lines of a report besides the arena's events, for its writer and its readers."""

NOTES = ("STACKS",)  # types of the lines that agents add
