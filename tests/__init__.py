"""fuser's tests.  A package, so that helpers are imported as `tests.…` whatever else is installed."""
