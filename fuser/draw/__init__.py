"""How plans are shown: text, JSON and DOT, from one record of facts (`facts`)."""
