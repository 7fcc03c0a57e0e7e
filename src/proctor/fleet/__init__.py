"""Many runs on one Ray cluster: what they are, who runs them, and how each stands.

words                                  kinds of events
cells, naming                          what a fleet consists of: `expand`
loading                                from a YAML file to a resolved fleet spec
finding, arriving                      checkpoints by list, pattern, or in a watched directory
folder, resubmit, notes                the fleet directory, and what may change when a fleet is submitted again
ways, planning, measured               the three ways to spend GPUs, in hours
standing, history                      a row for each cell, from the run directories and events alone
addresses                              cells as runs, for what puts runs beside each other
observe, view, decide, act, loop       the watcher: what is seen, what follows from it, what is done
current, progress, others              what it sees: the record as it grows, rows of units, GPUs of others
book, silence                          what it remembers
jobs, limited, unit                    Ray's job server; what a job does
notify, webhook, telling, exported     who is told: a webhook, Prometheus
examined                               what `proctor doctor` looks at
"""
