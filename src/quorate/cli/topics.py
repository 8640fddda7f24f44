"""``quorate topics``: create, list, describe, alter and delete topics."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from quorate.cli.options import (
    DEFAULT_TIMEOUT_S,
    BootstrapOption,
    CommandConfigOption,
    TimeoutOption,
    open_client,
    parse_configs,
)
from quorate.cli.spark import FormatOption, OutputFormat
from quorate.cli.terminal import YesOption, confirm, counted, node_list, print_table
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import TopicName

if TYPE_CHECKING:
    from quorate.client.cluster_metadata import TopicMetadata
    from quorate.client.kafka_client import KafkaClient

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

NamesArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")]
ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A topic config; may be repeated.")
]


@app.command()
def create(  # noqa: PLR0917 - typer calls it by name
    names: NamesArgument,
    bootstrap_server: BootstrapOption = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="The cluster's default if not given.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="The cluster's default if not given.")] = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Create topics."""
    from quorate.client.admin.topics import BROKER_DEFAULT, NewTopic

    configs = parse_configs(config)
    new = [
        NewTopic(
            name=TopicName(name),
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=configs,
        )
        for name in names
    ]
    with open_client(bootstrap_server, timeout, command_config) as client:
        for name in client.topics.create(new):
            print(f"created {name}")


@app.command("list")
def list_topics(
    bootstrap_server: BootstrapOption = None,
    internal: Annotated[bool, typer.Option("--internal", help="Show the cluster's own topics too.")] = False,
    output_format: FormatOption = OutputFormat.TEXT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """List topics."""
    with open_client(bootstrap_server, timeout, command_config) as client:
        topics = client.cluster.metadata().topics
    rows = [_summary(topic) for _, topic in sorted(topics.items()) if internal or not topic.is_internal]
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(rows).decode())
        return
    print_table(
        ["topic", "partitions", "replicas", "id"],
        [[row["topic"], row["partition_count"], row["replication_factor"], row["topic_id"]] for row in rows],
    )
    print(f"{counted(len(rows), 'topic')}")


@app.command()
def describe(
    names: NamesArgument,
    bootstrap_server: BootstrapOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Show the partitions and configs of topics."""
    with open_client(bootstrap_server, timeout, command_config) as client:
        topics = _existing(client, names)
        configs = client.configs.describe_topics(names)
    described = [
        _summary(topics[TopicName(name)])
        | {
            "partitions": _partitions(topics[TopicName(name)]),
            "configs": {key: entry.value for key, entry in configs[TopicName(name)].items() if entry.is_set_on_topic},
        }
        for name in names
    ]
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(described).decode())
        return
    for topic in described:
        _show(topic)


@app.command()
def alter(  # noqa: PLR0917 - typer calls it by name
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    bootstrap_server: BootstrapOption = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="More partitions than it has.")] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="NAME", help="Back to its default; may be repeated.")
    ] = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Add partitions to a topic, or change its configs."""
    if partitions is None and not config and not delete_config:
        raise QuorateError("nothing to change: give --partitions, --config or --delete-config")
    configs = parse_configs(config)
    with open_client(bootstrap_server, timeout, command_config) as client:
        _existing(client, [name])
        if configs or delete_config:
            client.configs.alter_topic(name, values=configs, delete=delete_config or ())
        if partitions is not None:
            client.topics.add_partitions({name: partitions})
    print(f"altered {name}")


@app.command()
def delete(
    names: NamesArgument,
    bootstrap_server: BootstrapOption = None,
    yes: YesOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Delete topics and all that is in them."""
    with open_client(bootstrap_server, timeout, command_config) as client:
        _existing(client, names)
        confirm(f"Delete {', '.join(names)} and all that is in {'it' if len(names) == 1 else 'them'}?", yes=yes)
        client.topics.delete(names)
    for name in names:
        print(f"deleted {name}")


def _existing(client: "KafkaClient", names: list[str]) -> "dict[TopicName, TopicMetadata]":
    topics = dict(client.cluster.metadata(names).topics)
    for name in names:
        topic = topics.get(TopicName(name))
        if topic is None or topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise QuorateError(f"there is no topic {name}")
    return topics


def _summary(topic: "TopicMetadata") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in topic.partitions.values()), default=0),
    }


def _partitions(topic: "TopicMetadata") -> list[dict[str, Any]]:
    return [
        {
            "partition": index,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "offline": partition.offline_replicas,
        }
        for index, partition in sorted(topic.partitions.items())
    ]


def _show(topic: dict[str, Any]) -> None:
    print(f"topic {topic['topic']}, id {topic['topic_id']}")
    print_table(
        ["partition", "leader", "epoch", "replicas", "in sync", "offline"],
        [
            [
                row["partition"],
                "none" if row["leader"] is None else row["leader"],
                row["leader_epoch"],
                node_list(row["replicas"]),
                node_list(row["isr"]),
                node_list(row["offline"]),
            ]
            for row in topic["partitions"]
        ],
    )
    for name, value in sorted(topic["configs"].items()):
        print(f"{name} = {value}")
