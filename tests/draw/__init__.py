"""Pictures and pages of plans: that they are whole, well-formed and self-contained."""
