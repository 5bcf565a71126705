"""From a question to rows, or to an error before anything is read."""
