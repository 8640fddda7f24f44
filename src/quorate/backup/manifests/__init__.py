"""Manifests: what a backup holds, as a chain of immutable documents, and how the next one is committed."""
