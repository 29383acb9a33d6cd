"""Producer, consumer and administration with kafka-python's API, on librdkafka.

Everything here reaches a broker over the wire only. Import the names from `ottla`, which loads them when asked.
"""
