"""Producer, consumer and administration in kafka-python's words, on librdkafka's engine.

Everything here reaches a broker over the wire only. Import the names from `ottla`, which loads them when asked.
"""
