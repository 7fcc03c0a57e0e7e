"""A process that holds a lease until its stdin closes: ``python holder.py PLACE ENDPOINT TTL``."""

from __future__ import annotations

import sys
import threading

from proctor.rows import UserError
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import open_folder
from proctor.storage.lease import Lease

place, endpoint, ttl = sys.argv[1:]
folder = open_folder(place, StorageOptions(endpoint=endpoint or None, anonymous=True))
lost = threading.Event()


def on_lost(reason: str) -> None:
    print(f"lost: {reason}", flush=True)
    lost.set()


print("ready", flush=True)
sys.stdin.readline()
try:
    with Lease(folder, on_lost, ttl=float(ttl)).held():
        print("held", flush=True)
        sys.stdin.readline()
except UserError as error:
    print(f"refused: {error}", flush=True)
