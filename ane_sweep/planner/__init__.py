"""From words to tasks; starts nothing."""
