"""The command line: what it prints, and what it says when it refuses."""
