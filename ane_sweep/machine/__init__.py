"""What this host says of itself."""
