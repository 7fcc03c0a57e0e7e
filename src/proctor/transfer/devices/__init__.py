"""Where bytes lie and who moves them: buffers, streams and events of a CPU, of a GPU, and of a machine made for tests.

Code above writes down what waits for what once, and it holds on all three.
"""
