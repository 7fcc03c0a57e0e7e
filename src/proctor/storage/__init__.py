"""Local directories and object storage behind one face: connecting, folders, and the lease on a folder."""
