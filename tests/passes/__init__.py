"""Tests of the passes: graphs before and after, plans of named programs, random graphs."""
