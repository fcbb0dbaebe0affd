"""Shows a run afterwards or from outside: its report, picture and logs."""
