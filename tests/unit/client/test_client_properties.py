"""``client.properties`` in Kafka's names: what they are here, and the sentence that each mistake gives."""

import pytest

from quorate.client.client_properties import ClientProperties, parse_client_properties, relevant_properties
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.errors import QuorateError
from quorate.security.listeners import SecurityProtocol
from quorate.security.properties import parse_properties

SCRAM = """
    bootstrap.servers=broker-1:9093,broker-2:9093
    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="secret \\\\"quoted\\\\"";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem
    group.id=orders
    acks=all
"""
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def parsed(text: str) -> ClientProperties:
    return parse_client_properties(parse_properties(text))


def security(**settings: object) -> SecurityConfig:
    return SecurityConfig(**{"tls_versions": "TLSv1.2,TLSv1.3", **settings})  # type: ignore[arg-type]


def test_scram_over_tls() -> None:
    assert parsed(SCRAM) == ClientProperties(
        bootstrap_servers="broker-1:9093,broker-2:9093",
        security=security(
            protocol=SecurityProtocol.SASL_SSL,
            sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
            username="alice",
            password='secret "quoted"',
            ca_location="/etc/kafka/ca.pem",
        ),
    )


def test_without_security_everything_is_plain() -> None:
    assert parsed("bootstrap.servers=a:1\nlinger.ms=5") == ClientProperties(
        bootstrap_servers="a:1", security=SecurityConfig()
    )
    assert parsed("").bootstrap_servers is None


def test_mutual_tls_with_files_and_with_texts() -> None:
    files = parsed(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/k.pem\nssl.key.password=p\n"
        "ssl.endpoint.identification.algorithm=\nssl.protocol=TLSv1.2\n"
        "ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    )
    assert files.security == SecurityConfig(
        protocol=SecurityProtocol.SSL,
        certificate_location="/k.pem",
        key_password="p",
        verify_hostname=False,
        tls_versions="TLSv1.2",
        cipher_suites="ECDHE-RSA-AES128-GCM-SHA256",
    )
    texts = parsed(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        "ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----\\nx\nssl.keystore.key=-----BEGIN KEY-----\n"
        "ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\ny"
    )
    assert texts.security == security(
        protocol=SecurityProtocol.SSL,
        certificate_chain="-----BEGIN CERTIFICATE-----\nx",
        private_key="-----BEGIN KEY-----",
        ca_certificates="-----BEGIN CERTIFICATE-----\ny",
    )


def test_a_delegation_token() -> None:
    found = parsed(SCRAM.replace('username="alice"', 'tokenauth="true" username="token-id"'))
    assert found.security.delegation_token


def test_client_credentials_in_settings_and_as_options() -> None:
    endpoint = "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n" + (
        "sasl.oauthbearer.token.endpoint.url=https://idp.example/token\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        "sasl.login.connect.timeout.ms=1000\n"
    )
    expected = security(
        protocol=SecurityProtocol.SASL_SSL,
        sasl_mechanism=SaslMechanism.OAUTHBEARER,
        oauth_token_endpoint="https://idp.example/token",
        oauth_client_id="backup",
        oauth_client_secret="s",
        oauth_scope="kafka",
        oauth_extensions="logicalCluster=lkc-1",
    )
    options = 'clientId="backup" clientSecret="s" scope="kafka" extension_logicalCluster="lkc-1"'
    assert parsed(endpoint + f"sasl.jaas.config={OAUTH} required {options};").security == expected
    settings = (
        "sasl.oauthbearer.client.credentials.client.id=backup\nsasl.oauthbearer.client.credentials.client.secret=s\n"
        f'sasl.oauthbearer.scope=kafka\nsasl.jaas.config={OAUTH} required extension_logicalCluster="lkc-1";'
    )
    assert parsed(endpoint + settings).security == expected


def test_a_token_in_a_file() -> None:
    found = parsed(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file:///run/my%20token\nsasl.jaas.config={OAUTH} required;"
    )
    assert found.security.oauth_token_location == "/run/my token"


@pytest.mark.parametrize(
    ("mechanism", "more", "module"),
    [
        ("AWS_MSK_IAM", "", "software.amazon.msk.auth.iam.IAMLoginModule"),
        (
            "OAUTHBEARER",
            "sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler\n",
            OAUTH,
        ),
    ],
)
def test_aws_msk_with_iam_as_java_clients_have_it(mechanism: str, more: str, module: str) -> None:
    found = parsed(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n{more}"
        "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
        f'sasl.jaas.config={module} required awsProfileName="backup" awsStsRegion="eu-central-1";'
    )
    assert found.security == security(
        protocol=SecurityProtocol.SASL_SSL,
        sasl_mechanism=SaslMechanism.AWS_MSK_IAM,
        aws_profile="backup",
        aws_region="eu-central-1",
    )


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("security.protocol=SASL_SSL", "security.protocol=TLS", "security.protocol: 'TLS' is not one of PLAINTEXT"),
        ("SCRAM-SHA-512", "GSSAPI", "sasl.mechanism: 'GSSAPI' is not one of PLAIN"),
        ("sasl.mechanism=SCRAM-SHA-512", "", "sasl.mechanism: is missing; there are PLAIN"),
        ("sasl.mechanism", "sasl.mechanisms", "unknown key 'sasl.mechanisms'; did you mean 'sasl.mechanism'?"),
        ("ssl.truststore.location", "ssl.trustore.location", "did you mean 'ssl.truststore.location'?"),
        ("ssl.truststore.type=PEM", "ssl.truststore.type=JKS", "ssl.truststore.type: only PEM is read, not JKS"),
        ("username=", "user=", 'sasl.jaas.config has no username, as in username="..."'),
        ("required", "", "sasl.jaas.config: after the login module comes one of required"),
        ("group.id", "ssl.endpoint.identification.algorithm", "'orders' is neither https nor empty"),
        ("group.id", "ssl.protocol", "ssl.protocol: 'orders' is not one of TLSv1.2, TLSv1.3"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key_and_no_secret(old: str, new: str, sentence: str) -> None:
    with pytest.raises(QuorateError) as caught:
        parsed(SCRAM.replace(old, new))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_producers_and_consumers_have_is_not_looked_at() -> None:
    assert "group.id" not in relevant_properties(parse_properties(SCRAM))
    assert parsed(SCRAM) == parse_client_properties(relevant_properties(parse_properties(SCRAM)))
