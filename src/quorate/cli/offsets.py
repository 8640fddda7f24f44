"""``quorate offsets``: where consumer groups go on after a restore, shown, committed and undone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.options import COPY_TIMEOUT_S, CommandConfigOption, TimeoutOption
from quorate.cli.restore import read_restore_config
from quorate.cli.spark import FormatOption, OutputFormat
from quorate.cli.terminal import counted, tell
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.planning.cluster_snapshot import TopicSelection
    from quorate.backup.restore.config import RestoreConfig
    from quorate.backup.restore.offset_map import TranslatedGroup
    from quorate.backup.restore.plan import RestorePlan
    from quorate.client.kafka_client import KafkaClient

app = typer.Typer(help="Consumer groups after a restore.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option(help="The restore's YAML file.")]
RestoreIdOption = Annotated[
    str | None, typer.Option(help="Which restore; the newest one with these settings, unless given.")
]
GroupOption = Annotated[list[str] | None, typer.Option("--group", help="Only these groups; globs.")]


@app.command()
def show(  # noqa: PLR0917 - typer calls it by name
    config: ConfigOption,
    restore_id: RestoreIdOption = None,
    group: GroupOption = None,
    topic: Annotated[str | None, typer.Option(help="Show this target topic's offset map instead.")] = None,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Where each group goes on at the target, or which source offsets are behind a topic's offsets."""
    opened = _Opened(read_restore_config(config, command_config), restore_id, timeout)
    if topic is not None:
        _show_map(opened, topic, output_format)
        return
    _show_groups(opened.groups.translate(opened.selection(group)), output_format)


@app.command()
def apply(  # noqa: PLR0917 - typer calls it by name
    config: ConfigOption,
    restore_id: RestoreIdOption = None,
    group: GroupOption = None,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Commit the groups' offsets at the target. What they had before is kept, for rollback."""
    opened = _Opened(read_restore_config(config, command_config), restore_id, timeout)
    opened.require_done()
    with opened.client() as client:
        groups = opened.groups.apply(client, opened.selection(group))
    _show_groups(groups, output_format)


@app.command()
def rollback(
    config: ConfigOption,
    restore_id: RestoreIdOption = None,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Bring the groups' offsets back to what they were before the restore committed its own."""
    opened = _Opened(read_restore_config(config, command_config), restore_id, timeout)
    with opened.client() as client:
        groups = opened.groups.rollback(client)
    print(
        f"{counted(len(groups), 'group')} at the offsets from before restore {opened.restore_id} again",
        flush=True,
    )


class _Opened:
    """A restore that has a plan."""

    def __init__(self, config: "RestoreConfig", restore_id: str | None, timeout_s: float) -> None:
        from quorate.backup.manifests.catalog import ManifestCatalog
        from quorate.backup.objects.opening import open_storage
        from quorate.backup.restore.ledger import RestoreLedger, restores_location
        from quorate.backup.spark.restore.groups import RestoreGroups

        self._timeout_s = timeout_s
        self.config = config
        self.ledger = RestoreLedger(open_storage(restores_location(self.config)))
        self.restore_id = restore_id or self._newest()
        self.plan: RestorePlan = self.ledger.plan(self.restore_id)
        catalog = ManifestCatalog(open_storage(self.config.location), self.config.backup_id)
        manifest = catalog.read(self.plan.manifest_number)
        self.groups: RestoreGroups = RestoreGroups(self.ledger, self.restore_id, self.plan, manifest)

    def client(self) -> "KafkaClient":
        from quorate.backup.spark.restore.target import target_client_config
        from quorate.client.first_contact import require_answer
        from quorate.client.kafka_client import KafkaClient

        config = target_client_config(self.config)
        require_answer(config, self._timeout_s, tell)
        return KafkaClient(config)

    def selection(self, groups: list[str] | None) -> "TopicSelection":
        from quorate.backup.planning.cluster_snapshot import TopicSelection

        if groups:
            return TopicSelection(include=tuple(groups))
        return self.config.restore.consumer_groups or TopicSelection()

    def require_done(self) -> None:
        if self.ledger.done(self.restore_id) is None:
            raise QuorateError(f"restore {self.restore_id} is not done: finish it first with quorate restore")

    def _newest(self) -> str:
        from quorate.backup.restore.ledger import settings_digest
        from quorate.backup.spark.restore.target import RestoreTarget

        with self.client() as client:
            digest = settings_digest(self.config, RestoreTarget(client).cluster_id)
        found = self.ledger.latest(digest)
        if found is None:
            raise QuorateError("there is no restore with these settings: run quorate restore first")
        return found


def _show_groups(groups: "list[TranslatedGroup]", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(groups).decode(), flush=True)
        return
    for group in groups:
        for each in group.offsets:
            print(f"{group.group}: {each.topic}-{each.partition} at offset {each.offset}")
    print(f"{counted(len(groups), 'group')}", flush=True)


def _show_map(opened: _Opened, topic: str, output_format: OutputFormat) -> None:
    names = [each.name for each in opened.plan.topics]
    if topic not in names:
        raise QuorateError(f"restore {opened.restore_id} has no topic {topic}: it has {', '.join(names)}")
    name = next(each for each in names if each == topic)
    offset_map = opened.ledger.offset_map(opened.restore_id, opened.plan.map_id, name)
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(offset_map).decode(), flush=True)
        return
    for partition, sources in sorted(offset_map.items()):
        base = 0
        for source in sources:
            for first_offset, length in source.spans:
                base = first_offset if opened.plan.preserve_offsets else base
                print(
                    f"{topic}-{partition} offsets {base} to {base + length - 1}: source partition "
                    f"{source.source_partition}, offsets {first_offset} to {first_offset + length - 1}"
                )
                base += length
