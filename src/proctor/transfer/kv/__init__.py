"""Ships the key-value cache of a request from the worker that has read its prompt to the worker that writes its answer.

`sender` and `receiver` are the two ends. Control messages go over ZMQ, bytes through shared memory on one machine or
beside the messages; a block is the receiver's only when the sender has confirmed that its lease still held after the
bytes were copied and their checksums compared.
"""
