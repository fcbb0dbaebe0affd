"""What has to be installed for a job, and whether it is."""
