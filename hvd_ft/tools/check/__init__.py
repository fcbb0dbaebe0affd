"""`hvdft check`: checks that every part is installed and that they work together."""
