"""The way out of the agent: what may leave, how it is told, and the thread that sends it to Redis."""
