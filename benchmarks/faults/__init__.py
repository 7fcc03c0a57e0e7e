"""The fault matrix: every fault we know, planted into the same 2,000 rows under Proctor and under Ray Data as the field
uses it, and counted from the result files. See ``docs/faults.md``.
"""
