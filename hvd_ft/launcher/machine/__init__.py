"""The launcher's machine: events in, actions out, and no I/O. Pure."""
