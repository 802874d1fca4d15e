"""Plans as contracts: files that are saved, compared and checked."""
