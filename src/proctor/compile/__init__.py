"""Was compiling the vision encoder worth it: measured here, on this workload, with a verdict to act on."""
