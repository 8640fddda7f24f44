"""Access tokens of OAUTHBEARER: where they come from, and for how long one is used. Does I/O, in whose thread connects.

Out of a file, which is read for each login; from an identity provider, by client credentials (RFC 6749, section 4.4);
or signed with AWS credentials. What was fetched is shared by all clients of a process that have the same settings:
the tasks of a backup would else ask a provider thousands of times.

A token for AWS MSK with IAM is a signed request, whose signature Amazon's brokers check; nothing is asked over the
network for it, but for a role that is to be assumed. The credentials are found by botocore as everywhere on AWS:
environment, profile, instance or container role. It is part of the extra ``aws``.
"""

import base64
import json
import os
import re
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from quorate import __version__
from quorate.client.errors import AuthenticationFailed, Disconnected, TokenRefused, TokenUnavailable
from quorate.client.retries import MonotonicClock, SystemMonotonicClock
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.address import Address
from quorate.kernel.decoding import decode_json

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 1 << 20
#: A new one is fetched well before the old one ends.
_LIFETIME_USED: Final = 0.8
_MAX_REASON_LENGTH: Final = 200
_AWS_SERVICE: Final = "kafka-cluster"
_AWS_ACTION: Final = "kafka-cluster%3AConnect"
_AWS_LIFETIME_S: Final = 900
_AWS_SESSION_NAME: Final = "quorate"
#: ``b-1.orders.a1b2c3.c2.kafka.eu-central-1.amazonaws.com``, and the same of China's regions.
_AWS_BROKER_HOST: Final = re.compile(r".*\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")


class FetchedToken(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without its text."""

    text: str
    #: None where it is not known: then it is used once.
    lifetime_ms: int | None = None

    def __repr__(self) -> str:
        return f"FetchedToken(lifetime_ms={self.lifetime_ms})"


class SharedToken:
    """One token for all who ask, fetched when it is due. Who comes meanwhile waits for it."""

    def __init__(self, fetch: Callable[[], FetchedToken], clock: MonotonicClock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_ms = 0
        self._end_ms = 0

    def get(self) -> str:
        with self._lock:
            if self._clock.now_ms() >= self._refresh_ms:
                try:
                    self._renew()
                except TokenUnavailable:
                    # The provider is away, and what it gave still counts.
                    if self._clock.now_ms() >= self._end_ms:
                        raise
            return self._token

    def _renew(self) -> None:
        asked_ms = self._clock.now_ms()
        fetched = self._fetch()
        lifetime_ms = fetched.lifetime_ms or 0
        self._token = fetched.text
        self._refresh_ms = asked_ms + round(lifetime_ms * _LIFETIME_USED)
        self._end_ms = asked_ms + lifetime_ms


class TokenSource:
    """What a login shows to the broker at an address."""

    def __init__(self, security: SecurityConfig, clock: MonotonicClock) -> None:
        self._security = security
        self._clock = clock
        #: By AWS region; there is but one provider otherwise.
        self._shared: dict[str, SharedToken] = {}
        self._lock = threading.Lock()

    def token_for(self, address: Address) -> str:
        try:
            if self._security.oauth_token_location is not None:
                return _read_token(self._security.oauth_token_location)
            return self._shared_for(address).get()
        except TokenRefused as error:
            raise AuthenticationFailed(address, str(error)) from None
        except TokenUnavailable as error:
            raise Disconnected(address, f"no access token for {address}: {error}") from None

    def _shared_for(self, address: Address) -> SharedToken:
        security, region = self._security, ""
        if security.sasl_mechanism is SaslMechanism.AWS_MSK_IAM:
            region = aws_region_of(security, address.host)
        with self._lock:
            if region not in self._shared:
                self._shared[region] = SharedToken(lambda: _fetch(security, region), self._clock)
            return self._shared[region]


@lru_cache(maxsize=16)
def token_source(security: SecurityConfig) -> TokenSource:
    return TokenSource(security, SystemMonotonicClock())


def _fetch(security: SecurityConfig, region: str) -> FetchedToken:
    if not region:
        return fetch_by_client_credentials(security)
    return FetchedToken(text=signed_aws_token(security, region), lifetime_ms=_AWS_LIFETIME_S * 1000)


def _read_token(location: str) -> str:
    try:
        token = Path(location).read_text(encoding="ascii").strip()
    except OSError as error:
        raise TokenRefused(f"oauth_token_location {location} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token:
        raise TokenRefused(f"oauth_token_location {location} holds no token")
    return token


def fetch_by_client_credentials(security: SecurityConfig) -> FetchedToken:
    endpoint = security.oauth_token_endpoint
    assert endpoint is not None
    answer = _post(endpoint, _request(security, endpoint), _tls(security))
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(token, str) or not token:
        raise TokenRefused(f"{endpoint} answered without an access_token")
    if isinstance(lifetime_s, str) and lifetime_s.isdecimal():
        lifetime_s = int(lifetime_s)
    is_known = isinstance(lifetime_s, int | float) and lifetime_s > 0
    return FetchedToken(text=token, lifetime_ms=round(lifetime_s * 1000) if is_known else None)  # type: ignore[operator]


def _request(security: SecurityConfig, endpoint: str) -> urllib.request.Request:
    name, secret = security.oauth_client_id or "", security.oauth_client_secret or ""
    if security.oauth_header_urlencode:
        name, secret = urllib.parse.quote_plus(name), urllib.parse.quote_plus(secret)
    form = {"grant_type": "client_credentials"}
    if security.oauth_scope is not None:
        form["scope"] = security.oauth_scope
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(f'{name}:{secret}'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urllib.request.Request(endpoint, data=urllib.parse.urlencode(form).encode(), headers=headers, method="POST")


def _tls(security: SecurityConfig) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=security.oauth_ca_location)
    except (OSError, ssl.SSLError):
        raise TokenRefused(f"oauth_ca_location {security.oauth_ca_location} cannot be used") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The secret is for one host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(endpoint: str, request: urllib.request.Request, tls: ssl.SSLContext) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), _NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            content = response.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        refusal = f"{endpoint} answered {error.code}{_reason(error)}"
        raise (TokenUnavailable if error.code >= 500 or error.code == 429 else TokenRefused)(refusal) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise TokenRefused(f"the certificate of {endpoint} is refused: {error.reason.verify_message}") from None
        raise TokenUnavailable(f"{endpoint} cannot be reached: {error.reason}") from None
    except OSError as error:
        raise TokenUnavailable(f"{endpoint} does not answer: {error}") from None
    try:
        return decode_json(content, dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise TokenRefused(f"{endpoint} answered with something else than a JSON object") from None


def _reason(error: urllib.error.HTTPError) -> str:
    """What the provider says, on one line: it has ``error`` and perhaps ``error_description``."""
    try:
        said = json.loads(error.read(_MAX_ANSWER_BYTES))
        words = [said.get("error"), said.get("error_description")]
    except (OSError, ValueError, AttributeError):
        return ""
    text = " ".join(" ".join(str(word).split()) for word in words if word)[:_MAX_REASON_LENGTH]
    return f": {text}" if text else ""


def aws_region_of(security: SecurityConfig, host: str) -> str:
    """As the settings have it, or the broker's name, or the environment."""
    match = _AWS_BROKER_HOST.fullmatch(host.lower())
    named = security.aws_region or (None if match is None else match[1])
    region = named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise TokenRefused(f"aws_region is not set, and {host} does not tell the AWS region")
    return region


def signed_aws_token(security: SecurityConfig, region: str) -> str:
    """For any broker of the region."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest(method="GET", url=f"https://kafka.{region}.amazonaws.com/?Action={_AWS_ACTION}")
    SigV4QueryAuth(_credentials(security, region), _AWS_SERVICE, region, expires=_AWS_LIFETIME_S).add_auth(request)
    # Not under the signature, and only for Amazon's logs.
    url = f"{request.url}&User-Agent=quorate%2F{__version__}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _credentials(security: SecurityConfig, region: str) -> "ReadOnlyCredentials":
    import botocore.session
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        CredentialRetrievalError,
        HTTPClientError,
        MetadataRetrievalError,
    )

    try:
        session = botocore.session.Session(profile=security.aws_profile)
        if security.aws_role_arn is not None:
            return _assume_role(session, security, region)
        found = session.get_credentials()
        if found is None:
            raise TokenRefused("no AWS credentials were found: in the environment, a profile, or of a role")
        credentials: ReadOnlyCredentials = found.get_frozen_credentials()
        return credentials
    except ClientError as error:
        raise TokenRefused(f"AWS refuses the role {security.aws_role_arn}: {error}") from None
    except (CredentialRetrievalError, HTTPClientError, MetadataRetrievalError) as error:
        raise TokenUnavailable(f"the AWS credentials cannot be fetched: {error}") from None
    except BotoCoreError as error:
        raise TokenRefused(f"the AWS credentials cannot be used: {error}") from None


def _assume_role(session: Any, security: SecurityConfig, region: str) -> "ReadOnlyCredentials":
    from botocore.credentials import ReadOnlyCredentials

    given = session.create_client("sts", region_name=region).assume_role(
        RoleArn=security.aws_role_arn, RoleSessionName=security.aws_role_session_name or _AWS_SESSION_NAME
    )["Credentials"]
    return ReadOnlyCredentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
