"""This node's part in transactions: coordinating those whose log it leads, and asking after those of others."""
