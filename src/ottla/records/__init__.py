"""Record batches (magic 2): headers, records, codecs, validation and control records."""
