"""How we check ourselves; the product never imports it."""
