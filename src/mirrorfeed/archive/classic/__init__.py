"""What classic Spark shows of what it is going to read: with the places of logs all that reaches into the JVM."""
