"""Commands that take no part in a running job: only the command line imports them."""
