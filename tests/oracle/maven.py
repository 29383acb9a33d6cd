"""Where tests find Java class paths."""

from ottla.testing.maven import classpath as classpath
