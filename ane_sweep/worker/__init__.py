"""The child; torch stays in here."""
