"""The TLS context that a security config asks for."""

import ssl

from quorate.client.config import SecurityConfig
from quorate.kernel.errors import QuorateError


def tls_context(security: SecurityConfig) -> ssl.SSLContext | None:
    """None where the protocol has no TLS. The files are read here; a bad one is named."""
    if not security.protocol.uses_tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = security.verify_hostname
    if security.ca_location is not None:
        # Only these: with a private authority, a public one that vouches for the same name is not meant.
        context = _only_trusting(security)
    if security.certificate_location is not None:
        try:
            context.load_cert_chain(
                security.certificate_location, security.key_location, lambda: security.key_password or ""
            )
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (security.certificate_location, security.key_location)))
            raise QuorateError(f"security: the client certificate or key cannot be used ({files}): {error}") from None
    return context


def _only_trusting(security: SecurityConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.verify_hostname
    try:
        context.load_verify_locations(cafile=security.ca_location)
    except (OSError, ssl.SSLError) as error:
        raise QuorateError(f"security: ca_location {security.ca_location} cannot be used: {error}") from None
    return context
