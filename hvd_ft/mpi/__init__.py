"""Everything about Intel MPI: where it is, its settings, its networks, its launcher."""
