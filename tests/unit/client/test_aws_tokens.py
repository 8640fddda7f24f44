"""The token for AWS MSK with IAM, by the structure that Amazon describes; no network is needed for it."""

import hashlib
import hmac
from base64 import urlsafe_b64decode
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from quorate.client.access_tokens import aws_region_of, signed_aws_token
from quorate.client.errors import TokenRefused
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.security.listeners import SecurityProtocol

pytest.importorskip("botocore")

SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
BROKER = "b-1.orders.a1b2c3.c2.kafka.eu-central-1.amazonaws.com"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session/token+=")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def security(**aws: str) -> SecurityConfig:
    return SecurityConfig(protocol=SecurityProtocol.SASL_SSL, sasl_mechanism=SaslMechanism.AWS_MSK_IAM, **aws)  # type: ignore[arg-type]


def decoded(token: str) -> str:
    assert "=" not in token
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_the_token_is_a_signed_request_to_connect() -> None:
    url = urlsplit(decoded(signed_aws_token(security(), "eu-central-1")))
    query = dict(parse_qsl(url.query))

    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-central-1.amazonaws.com", "/")
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-SignedHeaders"] == "host"
    assert query["X-Amz-Security-Token"] == "session/token+="
    date = query["X-Amz-Date"][:8]
    assert query["X-Amz-Credential"] == f"AKIDEXAMPLE/{date}/eu-central-1/kafka-cluster/aws4_request"
    assert query["User-Agent"].startswith("quorate/")


def test_the_signature_is_that_of_signature_version_4() -> None:
    url = urlsplit(decoded(signed_aws_token(security(), "eu-central-1")))
    query = dict(parse_qsl(url.query))
    signature = query.pop("X-Amz-Signature")
    query.pop("User-Agent")
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    canonical = "\n".join(
        ["GET", "/", "&".join(f"{name}={value}" for name, value in pairs), f"host:{url.netloc}", "", "host"]
    )
    canonical += "\n" + hashlib.sha256(b"").hexdigest()
    scope = query["X-Amz-Credential"].partition("/")[2]
    signed = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")

    assert hmac.digest(key, signed.encode(), "sha256").hex() == signature


def test_the_region_is_that_of_the_broker_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws_region_of(security(), BROKER) == "eu-central-1"
    assert aws_region_of(security(), "boot-x.c1.kafka-serverless.us-east-1.amazonaws.com") == "us-east-1"
    assert aws_region_of(security(), "b-1.orders.x.c2.kafka.cn-north-1.amazonaws.com.cn") == "cn-north-1"
    assert aws_region_of(security(aws_region="us-west-2"), BROKER) == "us-west-2"
    with pytest.raises(TokenRefused, match=r"aws_region is not set, and kafka\.example does not tell"):
        aws_region_of(security(), "kafka.example")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    assert aws_region_of(security(), "kafka.example") == "sa-east-1"


def test_without_credentials_that_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(TokenRefused, match="no AWS credentials were found"):
        signed_aws_token(security(), "eu-central-1")


def test_a_profile_that_there_is_not_is_named() -> None:
    with pytest.raises(TokenRefused, match="nobody"):
        signed_aws_token(security(aws_profile="nobody"), "eu-central-1")


def test_it_is_said_as_oauthbearer() -> None:
    assert SaslMechanism.AWS_MSK_IAM.wire_name == "OAUTHBEARER"
    assert not list(security(aws_region="eu-central-1").problems())
