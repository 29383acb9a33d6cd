"""Tools for tests, of Ottla and of programs that use it: real broker processes, and faults to put them through."""
