"""The controller: pure modules that turn (image, request) into (records, response), and their runtime."""
