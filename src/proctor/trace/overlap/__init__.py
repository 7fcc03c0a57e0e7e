"""What ran at the same time, what waited, and the antipatterns of transfers that a trace can show."""
