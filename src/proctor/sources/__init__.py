"""Where rows come from: MDS shards, Parquet, JSON lines. Each gives ids without reading data, and bounded blocks."""
