"""The listeners of a node at work: what becomes of a connection that comes by one, and when their files change.

Everything that can be wrong with their settings is found before the node joins its cluster. Afterwards what cannot be
used is told, and what is in force stays in force. Connections keep what their handshake agreed on.
"""

import asyncio
import hmac
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Final

import msgspec

from quorate.broker.audit_log import AuditLog
from quorate.broker.config import NodeConfig
from quorate.broker.dispatch import Dispatch
from quorate.broker.peer_credentials import read_secret_file
from quorate.broker.request_context import Origin
from quorate.broker.sasl_gate import ListenerLogins, SaslGate, login_turns
from quorate.broker.services import Services
from quorate.kernel.errors import QuorateError
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.security.audit import LoginAttempt
from quorate.security.listeners import Listener, ListenerSettings
from quorate.security.principals import ANONYMOUS, KafkaPrincipal, subject_of
from quorate.security.sasl.settings import parse_sasl_settings
from quorate.security.tls import FileStamp, TlsReload, read_material, server_context, stamp_files
from quorate.security.tls_settings import ClientAuth, TlsSettings, parse_tls_settings
from quorate.transport.connection import CloseConnection, FrameHandler, ServerConnection

logger = logging.getLogger(__name__)

#: For what keys are made with which users that nobody knows get a salt.
_DECOYS: Final = "decoys of SCRAM users"
#: How often files are looked at.
_LOOK_INTERVAL_S: Final = 1.0


class ClientListener:
    def __init__(self, listener: Listener) -> None:
        """Reads the listener's files."""
        self.listener = listener
        self.tls = ListenerTls(listener) if listener.protocol.uses_tls else None
        self._sasl = parse_sasl_settings(listener.settings) if listener.protocol.uses_sasl else None
        self._logins: ListenerLogins | None = None
        self._audit = AuditLog()

    def start(self, services: Services, random: Random, decoy_key: bytes, turns: asyncio.Semaphore) -> None:
        if self._sasl is not None:
            self._logins = ListenerLogins(self._sasl, services, random, decoy_key, turns)
            self._logins.start()

    async def stop(self) -> None:
        if self._logins is not None:
            await self._logins.stop()

    def open(self, dispatch: Dispatch, connection: ServerConnection) -> FrameHandler:
        listener = self.listener
        origin = Origin(
            host=connection.peer_host,
            principal=self._principal(connection),
            listener=listener.name,
            protocol=listener.protocol,
        )
        dispatcher = dispatch.serve(connection, origin)
        return dispatcher if self._logins is None else SaslGate(self._logins, dispatcher, connection)

    def _principal(self, connection: ServerConnection) -> KafkaPrincipal:
        certificate = None if self.tls is None or self.listener.protocol.uses_sasl else connection.peer_certificate()
        if self.tls is None or certificate is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            raise CloseConnection(str(error)) from None
        principal = self.tls.settings.principals.principal(subject)
        if principal is None:
            raise CloseConnection("no rule of ssl.principal.mapping.rules is for its certificate")
        self._audit.tell_login(
            LoginAttempt(
                principal=str(principal),
                host=connection.peer_host,
                listener=self.listener.name,
                mechanism="TLS",
                is_allowed=True,
            )
        )
        return principal


class ClientListeners:
    def __init__(self, config: NodeConfig) -> None:
        """Reads files; QuorateError says what is wrong."""
        self.all: Sequence[ClientListener] = [ClientListener(listener) for listener in config.listeners.all]
        self._watch: TlsWatch | None = None
        self._decoy_keys: tuple[bytes, ...] = ()
        if config.cluster_secret_file is not None:
            self._decoy_keys = read_secret_file(config.cluster_secret_file).keys(_DECOYS)

    def start(self, services: Services, random: Random) -> None:
        """Take logins; follow files, and what is set while the node runs."""
        metadata, view = services.metadata, services.view
        turns = login_turns()
        for listener in self.all:
            listener.start(services, random, self._decoy_key(services), turns)

        def settings() -> Mapping[str, str]:
            configs = metadata.image.broker_configs
            return {**view.static_configs, **configs.get(None, {}), **configs.get(view.node_id, {})}

        def changed(_: MetadataImage, delta: Delta) -> None:
            if delta.brokers_reconfigured:
                watch.settings_changed()

        watch = self._watch = TlsWatch(
            [each.tls for each in self.all if each.tls is not None],
            settings,
            loop=services.loop,
            executor=services.executor,
        )
        metadata.subscribe(changed)
        watch.settings_changed()  # By what was set before this start.
        watch.start()

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.stop()
        for listener in self.all:
            await listener.stop()

    def _decoy_key(self, services: Services) -> bytes:
        """The same on all nodes that have a secret; a node by itself has something else that nobody is told."""
        if self._decoy_keys:
            return self._decoy_keys[0]
        own = services.metadata.image.brokers[services.node_id].directory_id
        return hmac.digest(own.bytes, _DECOYS.encode(), "sha256")


class _Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What was read at one moment, before any of it is used."""

    settings: TlsSettings
    context: ssl.SSLContext
    stamps: tuple[FileStamp | None, ...]
    digest: bytes


class ListenerTls:
    def __init__(self, listener: Listener) -> None:
        """Reads the listener's files; QuorateError says what is wrong with them."""
        self.listener = listener
        self._settings = listener_tls_settings(listener, listener.settings)
        self._use(_load(self._settings))

    def context(self) -> ssl.SSLContext:
        """Of a handshake that begins now."""
        return self._context

    @property
    def settings(self) -> TlsSettings:
        return self._settings

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises QuorateError where the listener could not work with these settings of the node. Reads files."""
        listener = self.listener
        wanted = listener_tls_settings(listener, ListenerSettings(settings, listener.name))
        if wanted != self._settings:
            _load(wanted)

    def look(self, settings: Mapping[str, str] | None) -> str | None:
        """Read files that have changed, or all where other settings are given; returns what there is to tell.

        For a worker: the loop only sees one context replaced by another.
        """
        wanted = self._settings
        if settings is not None:
            wanted = listener_tls_settings(self.listener, ListenerSettings(settings, self.listener.name))
        is_due = self._reload.is_due(stamp_files(self._settings.paths))
        if wanted == self._settings and not is_due:
            return None
        loaded = _load(wanted)
        if wanted == self._settings and not self._reload.is_new(loaded.digest):
            return None
        self._settings = wanted
        self._use(loaded)
        return f"its certificates were read again from {', '.join(wanted.paths) or 'its settings'}"

    def _use(self, loaded: _Loaded) -> None:
        self._context = loaded.context
        self._reload = TlsReload(loaded.stamps, loaded.digest)


def listener_tls_settings(listener: Listener, settings: ListenerSettings) -> TlsSettings:
    """With SASL a certificate shows nothing: as in Apache Kafka, one is asked for only where the listener says so."""
    parsed = parse_tls_settings(settings)
    is_own = settings.name_of("ssl.client.auth") != "ssl.client.auth"
    if listener.protocol.uses_sasl and not is_own:
        return msgspec.structs.replace(parsed, client_auth=ClientAuth.NONE)
    return parsed


def _load(settings: TlsSettings) -> _Loaded:
    stamps = stamp_files(settings.paths)
    material = read_material(settings)
    return _Loaded(settings=settings, context=server_context(settings, material), stamps=stamps, digest=material.digest)


class TlsWatch:
    """Has the listeners of a node look at their files, one after the other, and at new settings."""

    def __init__(
        self,
        listeners: Sequence[ListenerTls],
        settings: Callable[[], Mapping[str, str]],
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
    ) -> None:
        self._listeners = listeners
        self._settings = settings
        self._loop = loop
        self._executor = executor
        self._has_changed = asyncio.Event()
        self._watching = TaskScope(loop, logged_failures(logger, "the watch for new certificates"))

    def start(self) -> None:
        if self._listeners:
            self._watching.spawn(self._watch())

    def settings_changed(self) -> None:
        self._has_changed.set()

    async def stop(self) -> None:
        await self._watching.close()

    async def _watch(self) -> None:
        while True:
            with_settings = self._has_changed.is_set()
            self._has_changed.clear()
            settings = dict(self._settings()) if with_settings else None
            for listener in self._listeners:
                await self._look(listener, settings)
            try:
                async with asyncio.timeout(_LOOK_INTERVAL_S):
                    await self._has_changed.wait()
            except TimeoutError:
                continue

    async def _look(self, listener: ListenerTls, settings: Mapping[str, str] | None) -> None:
        name = listener.listener.name
        try:
            news = await self._loop.run_in_executor(self._executor, partial(listener.look, settings))
        except QuorateError as error:
            logger.error("tls of listener stays as it was listener=%s reason=%s", name, error)
            return
        if news is not None:
            logger.info("tls of listener is new listener=%s reason=%s", name, news)
