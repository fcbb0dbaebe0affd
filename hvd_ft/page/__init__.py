"""The status page of `hvdft run --status-port`: a process of its own, apart from the job."""
