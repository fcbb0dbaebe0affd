"""The lines of a report besides the arena's events, for its writer and its readers."""

# Types of the lines that agents and the launcher add.
NOTES = ("STACKS", "REPLACED", "CAUSE", "SLOW", "OPS", "RING")
# Version of what a report's lines mean: see reports/report.schema.json. Reports of versions that
# had none are 0. A field that is added makes no new version.
SCHEMA = 1
