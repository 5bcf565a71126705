"""The Delta side: what a table's log says, which ranges can be proven, and the rows of its change data feed."""
