"""What a person browses: which directories there are, the rows of a run, and the language in which rows are asked for.

Nothing in here knows of a web server: it is SQL over Parquet files, and text.
"""
