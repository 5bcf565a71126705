"""The permanent history: a table's feed, appended to a table of its own, from which every kept version can be rebuilt.

What is kept is said by records that stand in the history itself, each in the commit that appended its rows. `record`
and `columns` decide over them without Spark, `table` reads and appends, `run` is the cycle, `replay` goes back.
`feed/history.py` is about something else: what Delta's own log says of a table.
"""
