"""The soak: one long run under random faults from a seeded schedule, and an account of every row at its end."""
