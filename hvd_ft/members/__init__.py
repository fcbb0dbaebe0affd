"""Who is in a job and may act: hosts, membership, leases and leadership; pure rules."""
