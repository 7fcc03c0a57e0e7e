"""What a person looks at: the report of a run, frozen into one file."""
