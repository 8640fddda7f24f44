"""What to install where a command needs a package that only an extra brings.

A plain ``pip install quorate`` has none of them, as a cluster needs none. So no command checks for them: whatever
misses one, the same sentence says it.
"""

_EXTRAS = {
    "obstore": "backup",
    "pyarrow": "backup",
    "pyspark": "backup",
    "py4j": "backup",
    "yaml": "backup",
    "google": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "pandas": "connect",
    "zstandard": "connect",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
}


def missing_extra(error: ImportError) -> str | None:
    """One sentence that names the extra; None where no extra would bring the module."""
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    return f"this command needs {module}, which is not installed: pip install 'quorate[{extra}]'"
