"""What a large cluster costs its controller, its nodes and its clients: measured, on the production code."""
