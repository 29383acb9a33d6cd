"""Keys, certificates, passwords and login modules: shared by brokers, clients and tools, free of sockets."""
