"""The agent, one per rank: speaks MPI, runs no user code, keeps its rank's worker running."""
