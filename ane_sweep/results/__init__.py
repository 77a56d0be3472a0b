"""From outcomes to records."""
