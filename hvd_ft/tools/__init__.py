"""Commands that are no part of a running job: only the command line imports them."""
