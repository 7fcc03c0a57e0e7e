"""Where the time went: the census, busy time as unions of intervals, and idle gaps."""
