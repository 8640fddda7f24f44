"""What every layer may use: identifiers, errors, and the ports for clock and disk."""
