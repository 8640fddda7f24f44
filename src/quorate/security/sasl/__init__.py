"""SASL: for each mechanism the server's side and the client's, and what a connection may say before and after."""
