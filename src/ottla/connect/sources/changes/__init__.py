"""Changes of databases as records in Debezium's shape: their envelope, and one module for each kind of database."""
