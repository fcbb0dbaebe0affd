"""What every process of a job knows: settings, directory, placement, life-line."""
