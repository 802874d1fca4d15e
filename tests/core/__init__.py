"""Host expressions, shapes, index maps, graphs, their text and their verifier."""
