"""What can keep a job from running well: facts of a host, and pure rules that judge them."""
