"""`hvdft check`: whether everything is there and works together."""
