"""One family, one runtime, one precision and the meaning of one log line."""
