"""The lines of a report besides the arena's events, for its writer and its readers."""

# Types of the lines that agents and the launcher add.
NOTES = ("STACKS", "REPLACED", "CAUSE")
