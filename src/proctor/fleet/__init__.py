"""Many runs on one Ray cluster: what they are, and how each stands.

words                       kinds of events
cells, naming               what a fleet consists of: `expand`
loading                     from a YAML file to a resolved fleet spec
finding                     checkpoints by list, pattern, or in a watched directory
folder, resubmit            the fleet directory, and what may change when a fleet is submitted again
ways, planning, measured    the three ways to spend GPUs, in hours
listing                     a row for each cell, from the run directories alone
"""
