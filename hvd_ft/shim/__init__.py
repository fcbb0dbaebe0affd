"""The process between agent and worker: starts, relays output, reaps, outlives the agent."""
