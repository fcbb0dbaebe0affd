"""What the lines of a report are, besides the events of the arena; for its writer and readers."""

NOTES = ("STACKS",)  # types of what agents add
