"""Real software to test and measure against: Apache Kafka with its tools, and Quorate itself as a child process."""
