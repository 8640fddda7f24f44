"""Software that others wrote for Apache Kafka, on a Quorate cluster: what it needs of a broker is there."""
