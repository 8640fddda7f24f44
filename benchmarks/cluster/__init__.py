"""Three Quorate nodes beside three Apache Kafka nodes: many topics, replicated throughput, and failover."""
