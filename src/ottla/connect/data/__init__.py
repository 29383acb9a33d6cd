"""Connect's data model: schemas, structs, records and headers, and their forms in Arrow."""
