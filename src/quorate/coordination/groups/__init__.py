"""The group coordinator on a node: ``core`` has the rules, the modules here run them."""
